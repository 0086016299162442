"""`python -m quillcast.sim`: run fault simulations by seed, and print the story of one that failed."""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from quillcast.core.errors import LocalError, QuillcastError
from quillcast.protocol.reliability.protocols import BUILT_IN as RECOVERIES
from quillcast.protocol.scopes.policies import BUILT_IN
from quillcast.sim.chance import PEERS_MAX, PEERS_MIN
from quillcast.sim.scenario import load
from quillcast.sim.simulation import Simulation
from quillcast.sim.story import MessageLog, Story
from quillcast.sim.sweep import Outcome, Plan, outcomes
from quillcast.sim.world import Broken

PROGRESS_S = 10.0  # wide histories take seconds each, twice as long with sources: a sweep of 100 takes minutes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code: 0 if every seed held, 1 if something broke, 2 for a wrong call."""
    options = _parser().parse_args(arguments)
    try:
        _check(options)
        if options.seed is not None:
            return _replay(options)
        return _sweep(options)
    except QuillcastError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m quillcast.sim",
        description="Run fault simulations, each drawn by its seed, or a scenario of your own.",
    )
    add = parser.add_argument
    add("--seeds", type=int, metavar="N", help="number of seeds (default: 100, or the scenario's own)")
    add("--first", type=int, default=0, metavar="S", help="the first seed (default: 0)")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="processes (default: one per core)")
    add("--scenario", type=Path, metavar="FILE", help="a scenario as TOML, instead of one drawn per seed")
    add("--peers", type=int, default=PEERS_MAX, metavar="P", help=f"draw at most this many (default: {PEERS_MAX})")
    add("--hard", action="store_true", help="draw short histories: few peers, small bounds, short leases, aimed faults")
    add("--wild", nargs="?", const="", metavar="TWISTS", help="draw hard histories with random twists, or with these")
    add("--sources", action="store_true", help="topics with admission = source: each source numbers its own events")
    add("--outside", action="store_true", help="a third of the peers have no place in the ring")
    add("--scope", default="", metavar="POLICY,...", help="most peers are in a scope with these policies")
    add("--scopes", type=int, default=1, metavar="N", help="with --scope: divide them into N scopes (default: 1)")
    add("--within", default="", metavar="POLICY,...", help="with --scope: the scopes are members of one with these")
    add("--rooted", action="store_true", help="with --scope: all topics are rooted at the first scope")
    add("--cluster", default="", metavar="POLICY,...", help="with --scope: topics are rooted at a scope across them")
    add("--recovery", default="tree", choices=RECOVERIES, help="with --scope: how members repair (default: tree)")
    add("--composed", action="store_true", help="each seed draws scopes, policies, borders, admissions and more")
    add("--json", action="store_true", help="print one JSON object on the last line")
    add("--seed", type=int, metavar="S", help="run only this seed, in this process")
    add("--story", metavar="SUBJECT", help="with --seed: tell the story of topic:NAME or peer:NUMBER")
    add("--messages", action="store_true", help="with --story: every message and bundle, too")
    return parser


def _check(options: argparse.Namespace) -> None:
    """Raise `LocalError` for invalid options and combinations."""
    least_of = {"jobs": 1, "first": 0, "seed": 0, "scopes": 1}
    for name, least in least_of.items():
        number = getattr(options, name)
        if number is not None and number < least:
            raise LocalError(f"--{name} {number}: use a number of at least {least}")
    if options.seed is None and (options.story or options.messages):
        raise LocalError("--story and --messages tell of one run; name it with --seed S")
    told = {"--scope": options.scope, "--within": options.within, "--cluster": options.cluster}
    for option, policies in told.items():
        if unknown := [each for each in policies.split(",") if each and each not in BUILT_IN]:
            raise LocalError(f"{option} {unknown[0]}: policies are {', '.join(BUILT_IN)}")
    if options.composed and options.scope:
        raise LocalError("--composed draws the scopes; leave --scope out")
    given = {"--within": options.within, "--scopes": options.scopes > 1, "--recovery": options.recovery != "tree"}
    given |= {"--rooted": options.rooted, "--cluster": options.cluster}
    for option in (option for option, is_given in given.items() if is_given and not options.scope):
        raise LocalError(f"{option} goes with --scope POLICY")
    if options.rooted and options.cluster:
        raise LocalError("--rooted and --cluster name two root scopes for all topics; leave one out")
    if options.messages and not options.story:
        raise LocalError("--messages goes with --story SUBJECT")


def _sweep(options: argparse.Namespace) -> int:
    seeds, plan = _seeds(options), _plan(options)
    failed: list[Outcome] = []
    totals: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    began = time.perf_counter()
    progress = Progress(began)
    for done, outcome in enumerate(outcomes(seeds, plan, options.jobs), 1):
        marks.update(outcome.marks)
        totals.update(steps=outcome.steps, delivered=outcome.delivered, simulated_s=round(outcome.simulated_s))
        if outcome.broken:
            failed.append(outcome)
            progress.clear()
            print(f"seed {outcome.seed}: {outcome.broken}\n  replay: {_replay_command(outcome, plan)}")
        progress.show(f"{done} of {len(seeds)} seeds, {len(failed)} broken, {time.perf_counter() - began:.0f} s")
    progress.clear()
    wall_s = time.perf_counter() - began
    print(
        f"{len(seeds) - len(failed)} of {len(seeds)} seeds hold: {totals['simulated_s']:,} simulated seconds, "
        f"{totals['steps']:,} steps, {totals['delivered']:,} deliveries in {wall_s:.0f} s"
    )
    print("marks: " + ", ".join(f"{name} {count}" for name, count in sorted(marks.items())))
    if options.json:
        broken = [{"seed": outcome.seed, "broken": outcome.broken} for outcome in failed]
        print(
            json.dumps({"seeds": len(seeds), "broken": broken, "marks": marks, "seconds": round(wall_s, 3), **totals})
        )
    return 1 if failed else 0


def _seeds(options: argparse.Namespace) -> list[int]:
    if options.seeds is not None and options.seeds < 1:
        raise LocalError(f"--seeds {options.seeds}: use a number of at least 1")
    if options.scenario is not None and options.seeds is None:
        return list(load(options.scenario).seeds)
    return list(range(options.first, options.first + (options.seeds or 100)))


def _replay(options: argparse.Namespace) -> int:
    message_log = MessageLog() if options.messages else None
    scenario = _plan(options).scenario(options.seed)
    simulation = Simulation(scenario, options.seed, watch=message_log.watch if message_log is not None else None)
    broken: Broken | None = None
    try:
        simulation.run()
    except Broken as error:
        broken = error
    if options.story:
        for line in Story(simulation, options.story, message_log).lines():
            print(line)
    print(f"seed {options.seed}: {broken if broken is not None else 'everything holds'}")
    if broken is not None and broken.__cause__ is not None:
        sys.excepthook(type(broken.__cause__), broken.__cause__, broken.__cause__.__traceback__)
    return 1 if broken is not None else 0


def _plan(options: argparse.Namespace) -> Plan:
    if options.peers < PEERS_MIN:
        raise LocalError(f"--peers {options.peers}: drawn scenarios have at least {PEERS_MIN}")
    twists = None if options.wild is None else tuple(filter(None, options.wild.split(",")))
    return Plan(
        options.scenario, options.peers, options.hard, twists, options.sources, options.outside, options.scope,
        options.scopes, options.within, options.recovery, options.composed, options.rooted,
        options.cluster,
    )  # fmt: skip


def _replay_command(outcome: Outcome, plan: Plan) -> str:
    parts = ["python -m quillcast.sim --seed", str(outcome.seed)]
    if plan.file is not None:
        parts += ["--scenario", str(plan.file)]
    elif plan.wild is not None:
        parts += ["--wild", *([",".join(plan.wild)] if plan.wild else [])]
    elif plan.hard:
        parts += ["--hard"]
    elif plan.peers_max != PEERS_MAX:
        parts += ["--peers", str(plan.peers_max)]
    parts += ["--sources"] if plan.sources else []
    parts += ["--outside"] if plan.outside else []
    parts += ["--scope", plan.scope] if plan.scope else []
    parts += ["--scopes", str(plan.scopes)] if plan.scopes > 1 else []
    parts += ["--within", plan.within] if plan.within else []
    parts += ["--recovery", plan.recovery] if plan.recovery != "tree" else []
    parts += ["--rooted"] if plan.rooted else []
    parts += ["--cluster", plan.cluster] if plan.cluster else []
    parts += ["--composed"] if plan.composed else []
    return " ".join([*parts, "--story", outcome.about or "peer:0"])


class Progress:
    """The progress of a sweep, on standard error: a changing line on a terminal, otherwise a line now and then."""

    def __init__(self, began: float) -> None:
        self.shown_at = began

    def show(self, text: str) -> None:
        """Show the current progress."""
        now = time.perf_counter()
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif now - self.shown_at >= PROGRESS_S:
            self.shown_at = now
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line before something else is printed."""
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
