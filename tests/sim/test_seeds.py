"""Fault simulations that found something once. What it was stands in a test of its own wherever that can be small."""

import gc

import pytest

from quillcast.sim.sweep import Plan, run_batch

SEEDS = {
    161: "orphans became another root's children, told the first that they had left, and their leases there were gone",
    285: "the run ended while the word of a peer that had left the tree was on its way to its parent",
    351: "reigns followed one another so quickly that the one with the only copy was let go, and nobody was told",
    417: "a root that waited for orphans handed over, and the new one waited no more",
    456: "a subscription that began beyond a cut that was shorter than a lease",
    598: "a link that had been narrow for a while stayed narrow for all that had waited before it",
    642: "events of a reign that became known late were dropped as repeats, for later ones had gone out before",
    704: "a call whose acceptance was cut off waited for ever, and no other link between the two could come to stand",
    1184: "a leaving root handed over before the new one knew that it was the closest: its events were dropped",
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_failed_once_holds(seed: int) -> None:
    try:
        (outcome,) = run_batch([seed], Plan())
    finally:
        gc.enable()
    assert not outcome.broken
