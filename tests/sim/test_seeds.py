"""Fault simulations that found something once. What it was stands in a test of its own wherever that can be small."""

import gc

import pytest

from quillcast.sim.hard import hard
from quillcast.sim.simulation import Simulation
from quillcast.sim.sweep import Plan, run_batch

SEEDS = {
    161: "orphans became another root's children, told the first that they had left, and their leases there were gone",
    351: "terms followed one another so quickly that the one with the only copy was let go, and nobody was told",
    417: "a root that waited for orphans handed over, and the new one waited no more",
    456: "a subscription that began beyond a cut that was shorter than a lease",
    598: "a link that had been narrow for a while stayed narrow for all that had waited before it",
    642: "events of a term that became known late were dropped as repeats, for later ones had gone out before",
    704: "a call whose acceptance was cut off waited for ever, and no other link between the two could come to stand",
    1184: "a leaving root handed over before the new one knew that it was the closest: its events were dropped",
}

HARD_SEEDS = {
    2025: "a joining peer waited for the dead among those it measured",
    2096: "a subscriber whose lease had gone for a full buffer was judged as one with a lease",
    3311: "a parent's claim that came before its answer to the Join was ignored, and never said again",
    7207: "the answer to a Join from before a term began that term for somebody who was owed all of it",
    7541: "a repair sent one bundle per question where the link had little credit",
    7561: "adjacent losses were told apart, for another publisher's event went out between",
    7667: "what was told lost before a publisher's first event was told again as being from before it",
    8352: "a range was given up while repair went on",
    8353: "a refusal counted though its sender claimed to have the range by then",
    8397: "an event was told lost with one term, and admitted again under the next",
    9043: "what a void hole had held back was covered, and nobody above was told",
    9388: "with one replica a newcomer asked nobody, and took a topic in use for a new one",
    10077: "as 3311, after a pause",
    10342: "a hole before events that were told lost was never told",
    10376: "claims over a lossy link waited for an answer that had been lost, ever longer",
    10464: "two newcomers at once asked each other, and those who knew the topic kept it to themselves",
    20126: "a part of the network that was out of reach when a peer came back did not count as lost",
    20304: "a subscription waited for events from before it, and told them lost",
    20682: "the root had refused as a fallback, and its word as the root was waited for",
    21124: "events between those told lost and the first that came were never told",
    21416: "a hole that a full buffer made was looked after by nobody",
    30069: "the last copies of a past term went at once when a buffer was full",
    30486: "a topic that waits let go of what others lacked of a past term",
    30621: "a root that was about to become root again yielded to a closer one, and forgot what it knew",
    31141: "a hole was void just when another term brought what filled it",
    31284: "a root of two short terms stayed for what it knew of the second only",
    200805: "a repair waited for credit that was held back for the gap which it would fill",
    201527: "a forwarder that was restarted ended the leases of those that had been below it",
    201856: "credit was held back for repeats, and for more than the buffers were over their budget",
    31341: "a topic was to be passed on that had not been entered again",
    203924: "what a past root had called stable was waited for as if it might be admitted again",
    300538: "events of a past term that nobody knew were given up while a later term held them and had no credit",
    302260: "a root forgot no publisher whose peer was lost, came back and was lost again",
    302285: "a joining peer whose one request was lost waited for half a minute",
    402192: "a root looked for the end of lost publishers' leases once per lease, and so remembered some for two",
    407473: "a lease ended when its owner came back elsewhere, and the parent was not told what was covered then",
    402602: "a joining peer whose one contact had died tried nobody else, though others spoke to it",
    430248: "of what was asked for, and was gone before there was credit for it, one bundle was given up per look",
    414268: "a former parent still named a child that was another's by then, and so its lease ended when it was lost",
    430708: "a joining peer waited for a dead one of whose loss nobody told it, for the others had known it before",
    430353: "a parent that kept what its child lacked was taken for silent, as its answers were lost",
    431352: "a root took a child for slow whose report was a moment behind its last admission, and cut all below it",
    414782: "as 411281: terms of two roots that knew nothing of each other",
    415128: "as 430708: the topic had no root meanwhile, and its orphans' leases ended",
    411281: "newcomers took a topic for a new one whose only replica had died before they came",
    411324: "a joining peer asked only once whom a near one knows, and waited long for an answer that was lost",
    400484: "an event went out as recovered before the report that it may have been lost",
    310667: "what the subscription's term had admitted before it began was told lost as a void hole",
    443465: "events of an earlier term that a later one had overtaken were dropped as repeats",
    443569: "as 310667: a term between had admitted it",
    448313: "what a peer had discarded of a past term was behind it, at a neighbour that nobody else could ask",
    446670: "a past term filled the root's buffers until what its publisher held for a subscriber was given up",
    451788: "events beyond a partition that their publisher had discarded were taken for sent again",
    450908: "all keepers of a topic were beyond a partition, and a former one had given them what it knew before",
    455998: "a child that had caught up had no lease again for as long as somebody below it was behind",
    460311: "events that a later term would bring were taken for some that had been reported by their positions",
    465077: "publishers were held back, and what they kept was given up meanwhile",
    467422: "an event that had waited behind a hole was delivered as if it could not have been reported lost",
    469423: "a peer that awaited events of a past term held back credit for what it kept of it",
    440610: "a loss that followed at once from another was a report of its own",
    310733: "as 310667, for a subscription that knew of the earlier term",
}


@pytest.mark.parametrize("seed", HARD_SEEDS)
def test_what_failed_once_in_a_hard_history_holds(seed: int) -> None:
    Simulation(hard(seed), seed).run()


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_what_failed_once_holds(seed: int) -> None:
    try:
        (outcome,) = run_batch([seed], Plan())
    finally:
        gc.enable()
    assert not outcome.broken
