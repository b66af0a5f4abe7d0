"""`lakelog maintain`: merge, compact, expire, move and tidy, once or on a schedule."""

import logging
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.common import (
    Data,
    Json,
    console,
    pairs,
    print_json,
    print_table,
    progress_console,
    seconds,
)
from log_tables.clock import SystemClock, timer
from log_tables.counts import counted
from log_tables.errors import InvalidArgument, LakelogError

if TYPE_CHECKING:
    from ingest.settings import Settings
    from jobs.maintenance import Maintenance
    from jobs.metrics import Metrics
    from jobs.outcome import JobOutcome
    from log_tables.cluster.cluster import Cluster

_log = logging.getLogger(__name__)
_FAILED = 1
GLANCE_S = 5.0
"""How often it is looked between two runs how many files wait for a merge: a busy partition makes 250."""

GLANCE_S_PER_PARTITION = 0.03
"""The same for each partition, where there are many: to look at an idle one takes a hundredth of that."""


def maintain(  # noqa: PLR0913, PLR0917 -- each is an option
    data: Data = None,
    once: Annotated[bool, typer.Option("--once", help="One run; exit code 1 when something failed.")] = False,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="A run at least this often: 30s, 5m, 1h.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what a run would do.")] = False,
    topic: Annotated[
        str | None, typer.Option(help="Of --dry-run: only what it would do to this topic.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="auto|local|spark",
            help="Processes of this machine rewrite, or Spark; auto: the former up to "
            "maintain_local_max_bytes (4 GiB) a job, Spark beyond.",
        ),
    ] = None,
    job: Annotated[list[str], typer.Option(metavar="JOB", help="Only this job; may be repeated.")] = [],  # noqa: B006 -- typer copies it
    remote_root: Annotated[
        str | None, typer.Option(help="Where remote.storage.enable moves segments: a directory or a URL.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics on this port.", min=0, max=65_535)
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address of /metrics.")] = "127.0.0.1",
    nice: Annotated[
        int,
        typer.Option(
            help="How far the rewrites stand back behind others, while few files wait for a merge.",
            min=0,
            max=19,
        ),
    ] = 10,
    with_stdin: Annotated[
        bool,
        typer.Option(
            "--with-stdin", help="Stop when standard input ends: for a program that starts this one."
        ),
    ] = False,
    config: Annotated[
        str | None, typer.Option(help="Settings file (TOML); lakelog.toml where it exists.")
    ] = None,
    set_: Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Any other setting.")] = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Keep the tables small and fast. docs/maintenance.md of the sources has what each job costs."""
    if [once, every is not None, dry_run].count(True) != 1:
        raise InvalidArgument("choose one of --once, --every TIME and --dry-run")
    if topic is not None and not dry_run:
        raise InvalidArgument("--topic limits what --dry-run shows; a run is of all topics, so leave it out")
    from ingest.settings import load_settings

    interval_s = None if every is None else seconds(every)
    named = {"data": data, "remote_root": remote_root, "maintain_engine": engine}
    settings = load_settings(config, **{**named, **pairs(set_, "--set")})
    from api.log_format import log_to_stderr

    log_to_stderr(settings.log_level, settings.log_format)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from jobs.maintenance import Maintenance, jobs_named
    from jobs.segment_compaction import NAME as MERGE
    from lakelog.cli.beside import stopping_event
    from lakelog.cli.maintainer import choice
    from log_tables.cluster.admin.remote_admin import set_remote_root
    from log_tables.store.store import requests_are_paid

    jobs, choose = jobs_named(job), choice(settings, nice)
    cluster = _open(settings)
    if settings.remote_root and not dry_run:
        set_remote_root(cluster, settings.remote_root)
    maintenance = Maintenance(cluster, choose, jobs)
    if dry_run:
        _print_plans(maintenance, topic, json)
        return
    with stopping_event(with_stdin) as stopping:
        metrics = None if metrics_port is None else _serve_metrics(metrics_host, metrics_port)
        runner = _Runner(maintenance, cluster, stopping, _report(json, settings.log_format), metrics)
        if interval_s is None:
            raise typer.Exit(_FAILED if runner.run() else 0)
        glances = not requests_are_paid(settings.data) and any(each.name == MERGE for each in jobs)
        runner.repeat(interval_s, settings.unmerged_segments_urgent if glances else 0)


def _open(settings: "Settings") -> "Cluster":
    from ingest.opening import cluster_of
    from log_tables.root.inspection import check_location

    cluster = cluster_of(settings)
    check_location(cluster, settings.leader_timeout_ms / 1_000)
    return cluster


class _Report:
    """Says what became of a run: to people, and what went wrong to standard error."""

    def outcome(self, outcome: "JobOutcome") -> None:
        console().print(_sentence(outcome))

    def done(self, partitions: int, seconds: float) -> None:
        console().print(f"{counted(partitions, 'partition')} changed in {seconds:.1f} s")

    def problem(self, text: str) -> None:
        progress_console().print(f"lakelog: {text}")


class _JsonReport(_Report):
    """A row for each outcome, for programs."""

    def outcome(self, outcome: "JobOutcome") -> None:
        print_json(_row(outcome))

    def done(self, partitions: int, seconds: float) -> None:
        """The rows say it."""


class _LogReport(_Report):
    """All of it in the log, for a process whose output is a log of JSON."""

    def outcome(self, outcome: "JobOutcome") -> None:
        level = logging.ERROR if outcome.failed else logging.INFO
        _log.log(level, "%s", _sentence(outcome), extra={"fields": _row(outcome)})

    def done(self, partitions: int, seconds: float) -> None:
        _log.info("%s changed in %.1f s", counted(partitions, "partition"), seconds)

    def problem(self, text: str) -> None:
        _log.error("%s", text)


def _report(json: bool, log_format: str) -> _Report:
    if json:
        return _JsonReport()
    return _LogReport() if log_format == "json" else _Report()


class _Runner:
    """Runs maintenance again and again, and says what became of it."""

    def __init__(
        self,
        maintenance: "Maintenance",
        cluster: "Cluster",
        stopping: threading.Event,
        report: _Report,
        metrics: "Metrics | None",
    ) -> None:
        self._maintenance, self._cluster, self._stopping = maintenance, cluster, stopping
        self._report, self._metrics = report, metrics
        self._changed = 0

    def repeat(self, interval_s: float, urgent: int) -> None:
        """A run at least every `interval_s` seconds, and one that merges as soon as a partition has `urgent`
        files that merges would remove (0: none), until it is to stop.

        Between the runs that is looked at. If such a run can remove none, the next one waits for its time.
        Raises as `run`.
        """
        due_s, pause_s, helps = timer(), 0.0, True
        while not self._stopping.wait(pause_s):
            if timer() >= due_s:
                due_s, helps = timer() + interval_s, True
                self.run()
            elif urgent and helps and self._debt() >= urgent:
                self.run(hurried=True)
                helps = self._changed > 0
            pause_s = max(0.0, due_s - timer())
            if urgent:
                pause_s = min(pause_s, self._glance_pause_s())

    def _glance_pause_s(self) -> float:
        partitions = sum(topic.partition_count for topic in self._cluster.topics(include_internal=True))
        return max(GLANCE_S, GLANCE_S_PER_PARTITION * partitions)

    def _debt(self) -> int:
        try:
            return self._maintenance.look_at_debt()
        except LakelogError:
            return 0  # the next run says why

    def run(self, hurried: bool = False) -> bool:
        """One run, of merges alone if `hurried`; returns whether anything failed. The next run tries again.

        Raises typer.Exit when its engine cannot be had, or not again in this process.
        """
        began = timer()
        outcomes: list[JobOutcome] = []
        error: Exception | None = None
        from jobs.engine import EngineGone

        try:
            for outcome in self._maintenance.run(self._stopping.is_set, hurried):
                outcomes.append(outcome)
                self._tell(outcome)
        except LakelogError as raised:
            error = raised
            self._report.problem(f"the run ended early: {raised}")
        except EngineGone as raised:
            self._report.problem(str(raised))
            raise typer.Exit(_FAILED) from None
        except Exception as raised:  # noqa: BLE001 -- logged, and the next run is a new attempt
            error = raised
            _log.exception("the run ended early")
        failed = error is not None or any(outcome.failed for outcome in outcomes)
        self._changed = sum(not outcome.error for outcome in outcomes)
        if self._metrics is not None:
            self._metrics.run_done(failed, hurried, timer() - began, SystemClock().now_ms() / 1000)
        self._report.done(len(outcomes), timer() - began)
        return failed

    def _tell(self, outcome: "JobOutcome") -> None:
        if self._metrics is not None:
            self._metrics.partition_done(outcome)
        self._report.outcome(outcome)


def _row(outcome: "JobOutcome") -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(outcome)


def _sentence(outcome: "JobOutcome") -> str:
    where = f"{outcome.job} {outcome.topic}-{outcome.partition}"
    if outcome.error:
        return f"{where}: {'failed: ' if outcome.failed else ''}{outcome.error}"
    return (
        f"{where}: {counted(outcome.files_before, 'file')} to {outcome.files_after:,}, "
        f"{counted(outcome.bytes_before, 'byte')} to {outcome.bytes_after:,}, "
        f"{counted(outcome.records, 'record')} in "
        f"{outcome.seconds:.1f} s"
    )


def _print_plans(maintenance: "Maintenance", topic: str | None, json: bool) -> None:
    found = [*maintenance.previews(topic)]
    rows = [(job, step.topic, step.partition, engine, what) for job, step, what, engine in found]
    columns = ("job", "topic", "partition", "engine", "what")
    if json:
        offsets = [{"offsets": step.offsets} for _, step, _, _ in found]
        made = (dict(zip(columns, row, strict=True)) for row in rows)
        print_json([{**row, **more} for row, more in zip(made, offsets, strict=True)])
    elif rows:
        print_table(columns, rows)
    else:
        console().print("there is nothing to do")


def _serve_metrics(host: str, port: int) -> "Metrics":
    from prometheus_client import start_http_server

    from jobs.metrics import Metrics

    try:
        server, _ = start_http_server(port, addr=host)
    except OSError as error:
        raise InvalidArgument(
            f"--metrics-host {host} --metrics-port {port} cannot be served ({error.strerror}); choose others"
        ) from None
    at = f"[{host}]" if ":" in host else host
    progress_console().print(f"metrics at http://{at}:{server.server_port}/metrics")
    return Metrics()
