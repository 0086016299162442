"""The whole demo: its plan, the run of the network, and the audit of its journals."""

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.data import events_from, flights
from quillcast.demo.conductor import CONFIG, Conductor, Plan
from quillcast.demo.display import display
from quillcast.demo.network import HOW_TO, NETWORK
from quillcast.demo.sites import SITES, TOPIC, Sites
from quillcast.demo.state import State
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.pipeline.auditing import run_audit
from quillcast.pipeline.command import print_findings, steps
from quillcast.pipeline.findings import Findings
from quillcast.pipeline.run import Run, write_run
from quillcast.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan(
    peers: int, rate: float, file: Path | None, limit: int, seed: int, output: Path | None, *, kill: bool, stay: bool,
    scopes: bool = False,
) -> Plan:  # fmt: skip
    """The plan for these options.

    Raises `LocalError` if the events cannot be read, or if the output folder is not empty, and `DiskFailed` if nobody
    can write to it.
    """
    events = list(islice(events_from(file) if file else flights(), limit))
    folder = output or Path("quillcast-demo") / time.strftime("%Y%m%d-%H%M%S")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise LocalError(
                f"{folder} is not empty, and what is in it would be audited too; name another with --output"
            )
        (folder / "peers").mkdir(parents=True)
    except OSError as problem:
        raise DiskFailed(f"cannot write to {folder}: {problem.strerror}; name another with --output") from problem
    if scopes:
        events = [event._replace(topic=TOPIC) for event in events]
    return Plan(f"{NETWORK}{os.getpid()}", folder, peers, rate, seed, kill, events, stay, scopes)


def _once(end: Callable[[], None]) -> Callable[[], None]:
    """A handler for Ctrl-C: the first ends the demo in good order, the second at once."""

    def ended() -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end()

    return ended


def judged(findings: Findings, failures: list[str]) -> str:
    """The judgement on the three sites, in a sentence."""
    summary = findings.summary()
    what = f"{summary.delivered:,} of {summary.expected:,} deliveries: {summary.lost} lost, "
    what += f"{summary.duplicates} repeated"
    if findings.sound and not failures:
        return f"[bold green]✓[/] Every promise held, through kills and a change of policy. {what}"
    broken = [row["verdict"] for row in findings.verdicts if not row["holds"]]
    return f"[bold red]✗[/] A promise was broken: {'; '.join((*broken, *failures))}. {what}"


class Performance:
    """One performance of the demo, with its audit."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self.plan, self.console = plan, console
        overlay = CONFIG.overlay
        what = f"{len(SITES)} sites" if plan.scopes else f"{plan.peers} peers in {plan.peers} processes"
        self.state = State(
            f"quillcast demo: {what}, b = {overlay.digit_bits}, l = {overlay.leaf_set_size}, seed {plan.seed}",
            plan.journals,
        )
        self._conductor: Conductor | None = None
        self._spark: Future[SparkSession] = Future()
        self._warm_up = threading.Thread(target=self._start_spark, daemon=True)

    async def play(self) -> Run:
        """Run the network."""
        with self._cleaning_up(), display(self.console, self.state) as shown:
            cast = Sites if self.plan.scopes else Conductor
            conductor = self._conductor = cast(self.plan, self.state, shown, self._warm_up.start)
            if self.plan.stay:
                shown.note("it runs until Ctrl-C or quillcast demo end; then comes the audit")
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, _once(conductor.enough))
            return await conductor.perform()

    def prove(self, told: Run) -> tuple[dict[str, Any], bool]:
        """Audit the journals, print the result, write the page. Returns the figures, and whether every promise held."""
        folder, report = self.plan.folder, self.plan.folder / "report.html"
        write_run(folder, told)
        with steps(self.console) as say:
            say("waiting for Spark")
            self._spark.result()
            findings = run_audit(folder, told, report=report, say=say)
        print_findings(findings, self.console)
        self.console.print(f"The report with pictures is {report}", soft_wrap=True)
        figures = self._figures(findings, report)
        if isinstance(self._conductor, Sites):
            failures = self._conductor.failures
            self.console.print(judged(findings, failures), soft_wrap=True)
            return {**figures, **self._conductor.facts, "failures": failures}, findings.sound and not failures
        self.console.print(
            f"Next time kill peers yourself: quillcast demo --stay, and in another terminal {HOW_TO}", soft_wrap=True
        )
        return figures, findings.sound

    def _figures(self, findings: Findings, report: Path) -> dict[str, Any]:
        summary = msgspec.to_builtins(findings.summary())
        del summary["dropped"]  # its topics are reliable
        return {
            **summary,
            "peers": self.plan.peers,
            "report": str(report.absolute()),
            "seconds": round(self.state.elapsed_s, 1),
        }

    def _start_spark(self) -> None:
        """Start Spark's Java machine during the stream. An error is raised when the audit waits for it.

        It runs as a batch job, so peers that wake up get the CPU first. A lower priority would last for the whole
        audit, because only the superuser may raise it again.
        """
        try:
            os.sched_setscheduler(threading.get_native_id(), os.SCHED_BATCH, os.sched_param(0))
            self._spark.set_result(spark_session())
        except BaseException as problem:  # noqa: BLE001 - any error is raised again there
            self._spark.set_exception(problem)

    @contextmanager
    def _cleaning_up(self) -> Iterator[None]:
        """Remove the registry files that killed peers leave behind."""
        try:
            yield
        finally:
            shutil.rmtree(PeerRegistry(self.plan.network).folder, ignore_errors=True)
