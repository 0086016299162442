"""A run: the stages of an experiment, each saved in the run's folder before the next begins."""

import hashlib
import importlib.util
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from quillcast.core.errors import LocalError, QuillcastError
from quillcast.evaluation import plugins
from quillcast.evaluation.experiment import Experiment
from quillcast.evaluation.folder import REPORT, RESULT, Folder, of_policy
from quillcast.evaluation.memory import Watch
from quillcast.evaluation.progress import Display, watched
from quillcast.evaluation.report import figures
from quillcast.pipeline import extras
from quillcast.pipeline.java import java_home
from quillcast.pipeline.session import check_remote, own_address, spark_session, temporary_folder

if TYPE_CHECKING:
    from pyarrow import Table
    from pyspark.sql import DataFrame, SparkSession

    from quillcast.evaluation.deployment import Deployment, Shipped

STAGES = ("topology", "overlay", "workload", "kernels", "spark", "trees", "delays", "stress", "churn", "report")
"""The parts of `seconds`. `kernels`: compiling what stages will call, or loading it from the cache; `spark`: the wait
for Spark after everything that can be done without it."""

LONG_PEERS = 3_000_000  # with more, the last stage of Java's compiler is worth its start-up time; a guess
ARRAYS, TABLES = "arrays", "tables"


def evaluate(
    experiment: Experiment, path: Path, shown: Display, *, master: str = "local[*]", remote: str | None = None
) -> dict[str, Any]:
    """Run an experiment, or the missing parts of it.

    `path` is the run's folder, maybe from a stopped run of the same experiment; `remote` a Spark Connect server to use
    instead of `master`, such as sc://host. Returns the result, which is also in the folder with the report (see
    docs/commands.md). Raises `LocalError` for an invalid experiment, `DiskFailed` on a disk error; complete parts are
    kept.
    """
    check(experiment, master, remote)
    began_s = time.monotonic()
    folder = Folder(path.absolute(), experiment, inputs_of(experiment))
    try:
        with Watch() as memory, shown:
            run = _Run(experiment, folder, shown, lambda: session(experiment, master, remote))
            policies = run.tables(ship=remote is not None or not master.startswith("local["))
            result = {
                "experiment": experiment.name,
                "nodes": experiment.peers,
                "groups": run.groups,
                "seed": experiment.seed,
                "seconds": run.seconds,
                "peak_rss_bytes": memory.peak_bytes,
                "report": str(folder / REPORT),
                "policies": policies,
            }
            run.report(result)
        stages = {name: round(run.seconds[name], 3) for name in STAGES if name in run.seconds}
        total_s = time.monotonic() - began_s + run.taken_over_s
        result |= {"seconds": stages | {"total": round(total_s, 3)}, "peak_rss_bytes": memory.peak_bytes}
        folder.write(RESULT, msgspec.json.format(msgspec.json.encode(result), indent=2))
    finally:
        folder.close()
    return result


def check(experiment: Experiment, master: str, remote: str | None = None) -> None:
    """Raise `LocalError` if a library, Spark's master or a policy that the run needs is missing.

    Otherwise the run would fail after minutes of work.
    """
    extras.require("an evaluation", *extras.EVALUATION)
    if remote is None:
        own_address(master)
    else:
        check_remote(remote)
    packages_of(experiment)
    if remote is None:
        java_home()
    elif importlib.util.find_spec("grpc") is None:
        raise LocalError("Spark Connect needs grpcio; pip install 'pyspark[connect]==4.3.*'")


def packages_of(experiment: Experiment) -> set[str]:
    """The packages of an experiment's plug-ins, except our own. Raises `LocalError` if there is no such plug-in."""
    from quillcast.evaluation import policies
    from quillcast.evaluation.measures import METRICS, Measured
    from quillcast.evaluation.topology import TOPOLOGIES, is_generated
    from quillcast.evaluation.workload import WORKLOADS

    found = {package for policy in experiment.policies for package in policies.packages(policy)}
    found |= set(map(plugins.package_of, Measured(experiment.metrics).columns.values()))
    found |= set(map(METRICS.package, experiment.metrics))
    if is_generated(experiment.topology):
        found.add(TOPOLOGIES.package(experiment.topology))
    if WORKLOADS.knows(experiment.workload.members):
        found.add(WORKLOADS.package(experiment.workload.members))
    return found - {plugins.OURS}


def inputs_of(experiment: Experiment) -> dict[str, str]:
    """The external inputs of an experiment: packages with plug-ins, and files. Each has its digest.

    Raises `LocalError`.
    """
    found = {package: plugins.digest(package) for package in sorted(packages_of(experiment))}
    for name in (experiment.topology.partition("#")[0], experiment.workload.members):
        if Path(name).is_file():
            try:
                found[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()[:12]
            except OSError as error:
                raise LocalError(f"cannot read {name}: {error.strerror}; name another file") from error
    return found


def members_max(policy: str) -> int | None:
    """The largest group that a policy is evaluated for, if its own cost limits that. Larger groups are left out."""
    from quillcast.evaluation import policies

    most: int | None = getattr(policies.parse(policy).kernel, "members_max", None)
    return most


def session(experiment: Experiment, master: str, remote: str | None) -> "SparkSession":
    """The Spark session for an experiment. Raises `LocalError` if there cannot be one."""
    from quillcast.evaluation import stages

    if remote is not None:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        try:
            spark = SparkSession.builder.remote(remote).getOrCreate()
            for name, value in stages.SETTINGS.items():
                spark.conf.set(name, value)
        except PySparkException as error:
            where = remote.partition(";")[0]  # without its token
            raise LocalError(f"no Spark Connect server answers at {where}: {reason(str(error))}") from error
        return spark
    if master.startswith("local-cluster"):
        os.environ["SPARK_HOME"] = spark_home()
    short = experiment.peers < LONG_PEERS
    plain = {"spark.sql.shuffle.partitions": "4", "spark.sql.adaptive.enabled": "false"}
    plain["spark.driver.maxResultSize"] = "0"  # of executors that do not see the folder
    spark = spark_session(master, short=short, config=plain | stages.SETTINGS)
    if "QUILLCAST_DEBUG" not in os.environ:
        spark.sparkContext.setLogLevel("OFF")  # failures are raised here too, and reported in one line
    if master.startswith("local["):
        stages.warm_up_workers(spark)
    return spark


def reason(told: str) -> str:
    """An error message of Spark's client in one line: the details of a gRPC error, or the first line."""
    details = re.search(r'details = "([^"\n]+)"', told)
    return details[1] if details else told.partition("\n")[0]


def spark_home() -> str:
    """A Spark home where local clusters may write, outside the installed package."""
    import pyspark

    home = Path(tempfile.mkdtemp(prefix="quillcast-spark-"))
    for path in Path(pyspark.__path__[0]).iterdir():
        if path.name != "work":
            (home / path.name).symlink_to(path)
    return str(home)


class _Run:
    """One process's work on a run. `start` starts Spark."""

    def __init__(
        self, experiment: Experiment, folder: Folder, shown: Display, start: "Callable[[], SparkSession]"
    ) -> None:
        self.experiment, self.folder, self.shown = experiment, folder, shown
        self.network = ""
        self.seconds: dict[str, float] = {}
        self.taken_over_s = 0.0  # time that earlier processes spent on existing parts
        self._spark = _Later(start)
        self._visible = True  # whether all executors see the folder
        self._archives: dict[str, Shipped] = {}

    @property
    def groups(self) -> int:
        """The number of groups; with real membership it depends on the data."""
        return len(self.deployment.arrays().workload)

    @property
    def _metrics(self) -> list[str]:
        """The columns of the experiment's metrics, and of one that every run measures."""
        from quillcast.evaluation.measures import column_of

        return ["depth", *map(column_of, self.experiment.metrics)]

    @property
    def deployment(self) -> "Deployment":
        """The location of the arrays."""
        return self._deployment

    def tables(self, *, ship: bool) -> dict[str, figures.Figures]:
        """Make every missing table; returns the figures of each policy."""
        self._spark.begin()
        self._make_arrays()
        self._wait_for_spark(ship=ship)
        self._make_deployment_tables()
        return {policy: self._policy(policy) for policy in self.experiment.policies}

    def _make_arrays(self) -> None:
        """Make everything that does not need Spark, while Spark starts."""
        from quillcast.evaluation import deployment, stages
        from quillcast.evaluation.network import Topology
        from quillcast.evaluation.workload import Workload

        folder = self.folder / ARRAYS
        of_stage = {"topology": ("topology",), "overlay": ("peers", "routing"), "workload": ("workload",)}
        for stage, parts in of_stage.items():
            for part in parts:
                make = partial(deployment.MAKERS[part], self.experiment, folder)
                self._part(stage, f"{ARRAYS}/{part}", part, make)
                if part == deployment.TOPOLOGY:
                    self.network = Topology.open(folder / part).name
                    self.shown.tell(f"network: {self.network}")
                elif part == deployment.WORKLOAD:
                    self.shown.tell(f"groups: {Workload.open(folder / part).name}")
        if self.experiment.churn is not None:
            make = partial(deployment.make_survivors, self.experiment, folder)
            self._part("churn", f"{ARRAYS}-of-{deployment.SURVIVORS}", deployment.SURVIVORS, make)
        self._deployment = self._deployed(deployment.Shipped(str(folder)))
        missing = [
            policy for policy in self.experiment.policies if not self.folder.has(of_policy(f"{TABLES}/trees", policy))
        ]
        if missing:
            self.shown.begin("kernels")
            began_s = time.monotonic()
            stages.warm_up_kernels(self._deployment, missing, self.experiment.metrics)
            self._took("kernels", "kernels", time.monotonic() - began_s)

    def _wait_for_spark(self, *, ship: bool) -> None:
        from quillcast.evaluation import deployment, stored

        began_s = time.monotonic()
        self.shown.begin("Spark")
        spark = self._spark.get()
        plugins.ship(spark, packages_of(self.experiment), temporary_folder("plugins"), everywhere=ship)
        if ship:
            folder = self.folder / ARRAYS
            archive = self.folder / f"arrays-{self.experiment.identity}.tar"
            self._deployment = self._deployed(deployment.ship(spark, folder, archive))
            with watched(spark, self.shown, "Spark"):
                self._visible = stored.is_visible(spark, folder)
        self._took("spark", "Spark", time.monotonic() - began_s)

    def _deployed(self, arrays: "Shipped") -> "Deployment":
        from quillcast.evaluation.deployment import Deployment

        return Deployment(arrays, self.experiment.seed, self.experiment.workload.publishers)

    def _make_deployment_tables(self) -> None:
        from quillcast.evaluation import stages

        for stage, name, table in (
            ("topology", "places", stages.places),
            ("topology", "links", stages.links),
            ("overlay", "peers", stages.peers),
            ("workload", "groups", stages.groups),
        ):
            made = partial(_deployment_table, table, self.deployment)
            self._table(stage, f"{TABLES}/{name}", f"table of {name}", made)

    def _policy(self, policy: str) -> figures.Figures:
        """Make the tables of a policy; returns its figures."""
        from quillcast.evaluation import schemas, stages, stored

        metrics = self.experiment.metrics
        load = self._load(policy)
        most = members_max(policy)

        def table(name: str) -> "DataFrame":
            return self._files(of_policy(f"{TABLES}/{name}", policy))

        def make(stage: str, name: str, table: "Callable[[Path], DataFrame]") -> None:
            self._table(
                stage, of_policy(f"{TABLES}/{name}", policy), f"{name} of {policy}", lambda _, into: table(into)
            )

        def groups() -> "DataFrame":
            if most is None:
                return self._files(f"{TABLES}/groups")
            rows = stored.read(self._files(f"{TABLES}/groups"), schemas.GROUPS)
            return rows.where(rows.members <= most)

        make("trees", "trees", lambda into: stages.trees(groups(), self.deployment, policy, load, into))
        make("delays", "delays", lambda into: stages.delays(table("trees"), self.deployment, into, metrics))
        make("stress", "stress", lambda into: stages.stress(table("trees"), self.deployment, into))
        make("stress", "histograms", lambda into: stages.histograms(table("stress"), into))
        told = figures.summary(*self.columns(policy), self._metrics)
        if self.experiment.churn is not None:
            part = of_policy(f"{TABLES}/churn", policy)
            make(
                "churn", "churn", lambda into: stages.repairs(table("trees"), self.deployment, self._survivors(), into)
            )
            told |= {"churn": figures.of_churn(self._read(part, schemas.columns(schemas.CHURN)).to_pydict())}
        left_out = 0 if most is None else int((self.deployment.arrays().workload.sizes > most).sum())
        return told | {"groups_left_out": left_out} if left_out else told

    def _survivors(self) -> "Shipped":
        """The location of the survivors' arrays."""
        from quillcast.evaluation import deployment

        return self._shipped(f"{ARRAYS}-of-{deployment.SURVIVORS}")

    def _shipped(self, part: str) -> "Shipped":
        """Further arrays, visible or shipped like those of the deployment."""
        from quillcast.evaluation import deployment

        shipped = self.deployment.shipped
        if not shipped.archive:
            return deployment.Shipped(str(self.folder / part))
        if part not in self._archives:
            name = hashlib.sha256(part.encode()).hexdigest()[:12]
            archive = self.folder / f"{name}-{shipped.archive}"
            self._archives[part] = deployment.ship(self._spark.get(), self.folder / part, archive)
        return self._archives[part]

    def _load(self, policy: str) -> "Shipped | None":
        """The load of all groups on each peer, if the policy needs it."""
        from quillcast.evaluation import policies, stages

        if not policies.parse(policy).needs_load:
            return None
        part, arrays = of_policy(f"{TABLES}/loads", policy), of_policy(f"{ARRAYS}-of-loads", policy)
        self._table(
            "trees",
            part,
            f"loads of {policy}",
            lambda _, into: stages.loads(self._files(f"{TABLES}/groups"), self.deployment, policy, into),
        )
        peers = self.experiment.peers
        self._part("trees", arrays, "loads", lambda made: stages.save_load(self.folder / part, peers, made))
        return self._shipped(arrays)

    def columns(
        self, policy: str
    ) -> tuple[Mapping[str, list[float]], Mapping[tuple[str, str], list[tuple[float, int]]]]:
        """The input of a policy's figures: columns of its `delays`, and its `histograms`."""
        named = [*figures.RATIOS, "children_max", "members", *self._metrics]
        delays = self._read(of_policy(f"{TABLES}/delays", policy), named)
        rows = self._read(of_policy(f"{TABLES}/histograms", policy)).to_pylist()
        histograms: dict[tuple[str, str], list[tuple[float, int]]] = {}
        for row in sorted(rows, key=lambda row: row["value"]):
            histograms.setdefault((row["kind"], row["figure"]), []).append((row["value"], row["count"]))
        return delays.to_pydict(), histograms

    def report(self, result: Mapping[str, Any]) -> None:
        """Write the page."""
        from quillcast.evaluation.report.page import Outcome, render

        began_s = time.monotonic()
        self.shown.begin("report")
        columns = {policy: self.columns(policy) for policy in self.experiment.policies}
        outcome = Outcome(
            self.experiment,
            self.network,
            result,
            figures.beside_published(result["policies"], self.experiment.published),
            {policy: delays for policy, (delays, _) in columns.items()},
            {policy: histograms for policy, (_, histograms) in columns.items()},
            self._worst(self.experiment.policies[0]),
        )
        for name, text in render(outcome).items():
            self.folder.write(name or REPORT, text.encode())
        self._took("report", "report", time.monotonic() - began_s)

    def _worst(self, policy: str) -> "Any":
        """The tree whose events are latest relative to IP multicast, among those that can be drawn."""
        from quillcast.evaluation.report import worst

        delays, trees = (self.folder / of_policy(f"{TABLES}/{name}", policy) for name in ("delays", "trees"))
        return worst.find(delays, trees, self.deployment, policy)

    # --- parts

    def _read(self, part: str, columns: list[str] | None = None) -> "Table":
        """Read a small table."""
        from pyarrow import parquet

        return parquet.read_table(self.folder / part, columns=columns)

    def _files(self, part: str) -> "DataFrame":
        from quillcast.evaluation import stored

        folder = self.folder / part
        return stored.files(self._spark.get(), folder, "" if self._visible else self._shipped(part).archive)

    def _table(self, stage: str, part: str, what: str, table: "Callable[[SparkSession, Path], DataFrame]") -> None:
        """Have Spark's tasks write a table, if it is missing."""
        from quillcast.evaluation import stored

        def make(made: Path) -> None:
            spark = self._spark.get()
            with watched(spark, self.shown, what):
                stored.settle(table(spark, made))

        self._part(stage, part, what, make)

    def _part(self, stage: str, part: str, what: str, make: Callable[[Path], None]) -> None:
        """Make a part of the folder, if it is missing."""
        if self.folder.has(part):
            seconds = self.folder.made(part)["seconds"]
            self.taken_over_s += seconds
            self._took(stage, what, seconds, was_there=True)
            return
        self._spark.check()
        self.shown.begin(what)
        began_s = time.monotonic()
        try:
            with self.folder.making(part, stage=stage) as made:
                make(made)
        except QuillcastError:
            raise
        except Exception as error:
            raise self._told(error) from error
        self._took(stage, what, time.monotonic() - began_s)

    def _took(self, stage: str, what: str, seconds: float, *, was_there: bool = False) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self.shown.end(what, seconds, was_there=was_there)

    def _told(self, error: Exception) -> Exception:
        """Find the cause of a Spark failure: an error of ours from a task, a full disk, or the failure itself."""
        text = str(error)
        ours = re.search(r"^quillcast[\w.]*\.\w+: (.+)$", text, re.MULTILINE)
        if ours:
            return LocalError(ours[1])
        if "No space left on device" in text:
            return self.folder.refused("No space left on device")
        return error


def _deployment_table(
    table: "Callable[[SparkSession, Deployment, Path], DataFrame]",
    deployment: "Deployment",
    spark: "SparkSession",
    into: Path,
) -> "DataFrame":
    return table(spark, deployment, into)


class _Later:
    """Starts Spark in the background."""

    def __init__(self, start: "Callable[[], SparkSession]") -> None:
        self._start = start
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)
        self._session: SparkSession | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        """Start it now."""
        self._thread.start()

    def check(self) -> None:
        """Raise the error of its start, if it has already failed."""
        if self._error is not None:
            raise self._error

    def get(self) -> "SparkSession":
        """The session. Raises the error of its start."""
        self._thread.join()
        self.check()
        assert self._session is not None
        return self._session

    def _run(self) -> None:
        try:
            self._session = self._start()
        except Exception as error:  # noqa: BLE001 (raised where the session is asked for)
            self._error = error
