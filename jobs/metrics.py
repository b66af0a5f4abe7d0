"""The metrics of a scheduler, for Prometheus; docs/maintenance.md lists every one."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from jobs.outcome import JobOutcome


class Metrics:
    """The measurements of one scheduler process."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._runs = Counter(
            "lakelog_maintenance_runs", "Runs, by how they ended.", ["result"], registry=registry
        )
        self._seconds = Gauge(
            "lakelog_maintenance_run_seconds", "How long the last run took.", registry=registry
        )
        self._succeeded = Gauge(
            "lakelog_maintenance_last_success_timestamp_seconds",
            "When a run of all jobs last ended without an error, in seconds since 1970.",
            registry=registry,
        )
        self._partitions = Counter(
            "lakelog_maintenance_partitions",
            "Partitions that a job changed, or failed to change.",
            ["job", "result"],
            registry=registry,
        )
        self._files = Counter(
            "lakelog_maintenance_files_removed",
            "Files that a job removed, less those that it wrote.",
            ["job"],
            registry=registry,
        )
        self._bytes = Counter(
            "lakelog_maintenance_bytes_read",
            "Bytes of the segments that a job read.",
            ["job"],
            registry=registry,
        )

    def partition_done(self, outcome: JobOutcome) -> None:
        """Count the outcome of a job for a partition."""
        self._partitions.labels(outcome.job, "failed" if outcome.failed else "done").inc()
        if not outcome.error:
            self._files.labels(outcome.job).inc(max(0, outcome.files_before - outcome.files_after))
            self._bytes.labels(outcome.job).inc(outcome.bytes_before)

    def run_done(self, failed: bool, hurried: bool, seconds: float, now_s: float) -> None:
        """Count a run that ended at `now_s` seconds since 1970; if it was `hurried`, it says nothing of the
        jobs that it left out.
        """
        self._runs.labels("failed" if failed else "done").inc()
        self._seconds.set(seconds)
        if not (failed or hurried):
            self._succeeded.set(now_s)
