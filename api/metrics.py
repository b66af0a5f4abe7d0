"""The metrics of a gateway, for Prometheus: produce, fetch, commits, the buffer, errors.

Topics are labels, so they are bounded: internal topics share one label, and so do all topics past
TOPIC_LABELS_MAX. docs/operating.md lists every metric.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from coordinator.groups.producers.producer_view import OpenFigures
from ingest.commit_budget import CommitBudget
from ingest.merge_debt import MergeDebt
from log_tables.cluster.topic import is_internal
from log_tables.schemas.registry import SourceCounts
from log_tables.store.disk_room import DiskRoom

TOPIC_LABELS_MAX = 1_000
"""Topics that get a label of their own: each is about 60 time series."""

INTERNAL_TOPICS = "(internal)"
OTHER_TOPICS = "(other)"

# A timestamp with every series would double the page.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of one partition that this process has open."""

    topic: str
    segments: int
    size_bytes: int
    leading: bool


class TopicMetrics:
    """The measurements of one topic; their labels are bound once, as they are on the hot path."""

    def __init__(self, metrics: "Metrics", label: str) -> None:
        self._produced_records = metrics.produce_records.labels(label)
        self._produced_bytes = metrics.produce_bytes.labels(label)
        self._produce_seconds = metrics.produce_seconds.labels(label)
        self._fetched_records = metrics.fetch_records.labels(label)
        self._fetched_bytes = metrics.fetch_bytes.labels(label)
        self._fetch_seconds = metrics.fetch_seconds.labels(label)
        self._commit_seconds = metrics.commit_seconds.labels(label)
        self._commit_records = metrics.commit_records.labels(label)

    def produced(self, records: int, size_bytes: int, seconds: float) -> None:
        """A produce request was answered: its records, its body's bytes, how long it took."""
        self._produced_records.inc(records)
        self._produced_bytes.inc(size_bytes)
        self._produce_seconds.observe(seconds)

    def fetched(self, records: int, size_bytes: int, seconds: float) -> None:
        """A fetch was answered. `seconds` leaves out what a long poll waited for records."""
        self._fetched_records.inc(records)
        self._fetched_bytes.inc(size_bytes)
        self._fetch_seconds.observe(seconds)

    def committed(self, records: int, seconds: float) -> None:
        """One Delta commit (one segment) is durable; `seconds` from sealing to durable."""
        self._commit_records.inc(records)
        self._commit_seconds.observe(seconds)


class Metrics:
    """One registry per gateway, so that several gateways in one process do not add up."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        topic = ["topic"]

        def counter(name: str, text: str, labels: Iterable[str] = topic) -> Counter:
            return Counter(f"lakelog_{name}", text, labels, registry=self.registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"lakelog_{name}_seconds", text, topic, registry=self.registry, buckets=_SECONDS)

        self.produce_records = counter("produce_records", "Records acknowledged.")
        self.produce_bytes = counter("produce_bytes", "Bytes of produce requests acknowledged.")
        self.produce_seconds = seconds("produce", "From a produce request's arrival to its answer.")
        self.fetch_records = counter("fetch_records", "Records given to readers.")
        self.fetch_bytes = counter("fetch_bytes", "Bytes of fetch answers.")
        self.fetch_seconds = seconds("fetch", "Making a fetch's answer, without waiting for records.")
        self.commit_seconds = seconds("commit", "From sealing a batch to its commit being durable.")
        self.commit_records = counter("commit_records", "Records made durable by commits.")
        self.request_errors = counter("request_errors", "Requests that failed.", ["error_code"])
        self._duty_failures = counter("duty_failures", "Background work that failed.", ["duty"])
        self._audited = counter("audit_events", "Events that are in the audit log.", ["kind"])
        self._unaudited = counter("audit_dropped_events", "Events that are in no record.", ["reason"])
        self._forwarded = counter("forwarded", "Requests sent on to the gateway that leads.", [])
        self._transactions = {
            "committed": counter("transactions_committed", "Transactions committed.", []),
            "applied": counter("transactions_applied", "Transactions whose records are in their topics.", []),
            "repeated": counter("transactions_repeated", "Requests that a retry key told for repeats.", []),
            "dropped": counter("transactions_dropped_parts", "Parts whose topic was deleted before.", []),
            "lost": counter("transactions_lost_parts", "Parts that cannot be applied: see the log.", []),
            "aborted": counter("transactions_aborted", "Transactions of Kafka's clients aborted.", []),
            "timed out": counter("transactions_timed_out", "Those that took too long among them.", []),
        }
        self._kafka_requests = Histogram(
            "lakelog_kafka_request_seconds",
            "From a request of a Kafka client to its answer, with what it waits for records or members.",
            ["api"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self._kafka_errors = counter("kafka_errors", "Errors in answers to Kafka's clients.", ["error"])
        self._topics: dict[str, TopicMetrics] = {}
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def topic(self, name: str) -> TopicMetrics:
        """The measurements of topic `name`."""
        known = self._topics.get(name)
        if known is None:
            label = self._label(name)
            known = self._topics.get(label) or self._topics.setdefault(label, TopicMetrics(self, label))
        return known

    def _label(self, name: str) -> str:
        if is_internal(name):
            return INTERNAL_TOPICS
        return name if len(self._topics) < TOPIC_LABELS_MAX else OTHER_TOPICS

    def forget_topics(self, is_gone: Callable[[str], bool]) -> None:
        """Topics that are gone, by whomever they were deleted, are no longer reported."""
        for name in [*self._topics]:
            if name not in (INTERNAL_TOPICS, OTHER_TOPICS) and is_gone(name):
                self._forget_topic(name)

    def _forget_topic(self, name: str) -> None:
        if self._topics.pop(name, None) is None:
            return
        for metric in (
            *(self.produce_records, self.produce_bytes, self.produce_seconds),
            *(self.fetch_records, self.fetch_bytes, self.fetch_seconds),
            *(self.commit_seconds, self.commit_records),
        ):
            metric.remove(name)

    def committed(self, topic: str, records: int, seconds: float) -> None:
        """A commit of `topic` is durable."""
        self.topic(topic).committed(records, seconds)

    def audited(self, kind: str) -> None:
        """An event is in the audit log."""
        self._audited.labels(kind).inc()

    def audit_dropped(self, reason: str, events: int) -> None:
        """There was no room for so many events, or nobody counted them."""
        self._unaudited.labels(reason).inc(events)

    def forwarded(self) -> None:
        """A request, or a part of one, was sent on to another gateway."""
        self._forwarded.inc()

    def transaction(self, what: str) -> None:
        """One was committed, applied, repeated or aborted, or a part of one was dropped or is lost."""
        self._transactions[what].inc()

    def request_failed(self, error_code: int) -> None:
        self.request_errors.labels(str(error_code)).inc()

    def kafka_answered(self, api: str, seconds: float) -> None:
        """A request of a Kafka client was answered, or is done if it has no answer."""
        self._kafka_requests.labels(api).observe(seconds)

    def kafka_failed(self, error: str, times: int) -> None:
        """An answer to a Kafka client has this error, by Kafka's name, so many times."""
        self._kafka_errors.labels(error).inc(times)

    def duty_failed(self, duty: str) -> None:
        self._duty_failures.labels(duty).inc()

    def watch_buffer(self, used: Callable[[], int], limit_bytes: int) -> None:
        """Report how full the produce buffer is, asked whenever the metrics are read."""
        gauge = Gauge("lakelog_buffer_used_bytes", "Bytes held until committed.", registry=self.registry)
        gauge.set_function(used)
        Gauge("lakelog_buffer_limit_bytes", "Bytes that may be held.", registry=self.registry).set(
            limit_bytes
        )

    def watch_budget(self, budget: CommitBudget) -> None:
        """Report how long batches wait for `budget`, and what of it is used."""
        waits = Histogram(
            "lakelog_commit_budget_wait_seconds",
            "How long batches waited for the budget of commits.",
            registry=self.registry,
            buckets=_SECONDS,
        )
        budget.on_waited = waits.observe
        Gauge(
            "lakelog_commit_budget_limit", "How much commits may cost each second.", registry=self.registry
        ).set(budget.limit)
        self.registry.register(_Budget(budget))

    def watch_debt(self, debt: MergeDebt) -> None:
        """Report how many files wait for a merge, asked whenever the metrics are read."""
        self.registry.register(_Debt(debt))

    def watch_room(self, room: DiskRoom) -> None:
        """Report how much room the store has, asked whenever the metrics are read."""
        self.registry.register(_Room(room))

    def watch_connections(self, connections: Callable[[], int], limit: int) -> None:
        """Report how many connections there are, asked whenever the metrics are read."""
        gauge = Gauge("lakelog_connections", "Connections of clients.", registry=self.registry)
        gauge.set_function(connections)
        Gauge("lakelog_connections_limit", "Connections that are taken.", registry=self.registry).set(limit)

    def watch_kafka_connections(self, connections: Callable[[], int]) -> None:
        """Report how many of the connections are those of Kafka's clients."""
        gauge = Gauge("lakelog_kafka_connections", "Connections of Kafka's clients.", registry=self.registry)
        gauge.set_function(connections)

    def watch_brokers(self, living: Callable[[], int]) -> None:
        """Report how many gateways live, asked whenever the metrics are read."""
        gauge = Gauge(
            "lakelog_brokers", "Gateways on this root that give signs of life.", registry=self.registry
        )
        gauge.set_function(living)

    def watch_deleted_topics(self, held_bytes: Callable[[], int]) -> None:
        """Report how many bytes deleted topics hold that can be brought back."""
        gauge = Gauge(
            "lakelog_deleted_topics_bytes",
            "Bytes that deleted topics hold, which can be brought back.",
            registry=self.registry,
        )
        gauge.set_function(held_bytes)

    def watch_transactions(self, figures: Callable[[], OpenFigures]) -> None:
        """Report the open transactions of Kafka's clients, asked whenever the metrics are read."""
        self.registry.register(_OpenTransactions(figures))

    def watch_authentications(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Report how often a credential was right, by method, asked whenever the metrics are read."""
        self.registry.register(_Authentications(counts))

    def watch_tables(self, sizes: Callable[[], Iterable[TableSize]]) -> None:
        """Report what open partitions hold, asked whenever the metrics are read."""
        self.registry.register(_Tables(sizes))

    def watch_schemas(self, counts: Callable[[], Mapping[str, SourceCounts]]) -> None:
        """Report what became of look-ups of schemas, by source, asked whenever the metrics are read."""
        self.registry.register(_Schemas(counts))

    def watch(self, collector: Collector) -> None:
        """Report what `collector` finds, asked whenever the metrics are read."""
        self.registry.register(collector)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return page(self.registry.collect())


def page(families: Iterable[Metric]) -> bytes:
    """`families` in Prometheus' text format, as the client library has them, which checks each name and label
    of each line again: that takes most of the time of some 100,000 lines.

    Names and labels must be plain; values of labels may be any text. Timestamps are left out.
    """
    lines = []
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        kind = "untyped" if family.type == "unknown" else family.type
        lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")
        for sample in family.samples:
            labels = ",".join([f'{key}="{_quoted(value)}"' for key, value in sorted(sample.labels.items())])
            lines.append(f"{sample.name}{{{labels}}} " if labels else f"{sample.name} ")
            lines.append(f"{floatToGoString(sample.value)}\n")  # type: ignore[no-untyped-call]
    return "".join(lines).encode()


def _quoted(value: str) -> str:
    if not ("\\" in value or '"' in value or "\n" in value):
        return value
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Budget(Collector):
    def __init__(self, budget: CommitBudget) -> None:
        self._budget = budget

    def collect(self) -> Iterator[CounterMetricFamily]:
        text = "The cost of commits so far: seconds of a core, or paid requests."
        yield CounterMetricFamily("lakelog_commit_budget_used", text, self._budget.used)


class _Room(Collector):
    def __init__(self, room: DiskRoom) -> None:
        self._room = room

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return (
            GaugeMetricFamily("lakelog_disk_full", "Whether records are refused for lack of room."),
            GaugeMetricFamily("lakelog_disk_free_bytes", "Bytes that are free on the disk of the root."),
        )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        full, free = self.describe()
        full.add_metric([], self._room.full is not None)
        yield full
        if self._room.free_bytes is not None:
            free.add_metric([], self._room.free_bytes)
        yield free  # of a bucket without a sample


class _Debt(Collector):
    """The worst partition of each topic, as a series for each partition would be thousands."""

    def __init__(self, debt: MergeDebt) -> None:
        self._debt = debt

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return (_unmerged(),)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        worst: dict[str, int] = {}
        for found in self._debt.found:
            known = found.topic in worst or len(worst) < TOPIC_LABELS_MAX
            topic = found.topic if known else OTHER_TOPICS
            worst[topic] = max(worst.get(topic, 0), found.files)
        family = _unmerged()
        for topic, files in worst.items():
            family.add_metric([topic], files)
        yield family


def _unmerged() -> GaugeMetricFamily:
    text = "Segments that merges would remove, in the worst partition of the topic that is led here."
    return GaugeMetricFamily("lakelog_unmerged_segments", text, labels=["topic"])


class _OpenTransactions(Collector):
    def __init__(self, figures: Callable[[], OpenFigures]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return _open_transactions(OpenFigures(0, 0.0, 0))

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return _open_transactions(self._figures())


def _open_transactions(found: OpenFigures) -> list[GaugeMetricFamily]:
    return [
        GaugeMetricFamily(
            "lakelog_open_transactions", "Open transactions that are coordinated here.", found.transactions
        ),
        GaugeMetricFamily(
            "lakelog_open_transaction_age_seconds", "The age of the oldest of them.", found.oldest_s
        ),
        GaugeMetricFamily(
            "lakelog_open_transactions_bytes", "Bytes that are staged for them.", found.size_bytes
        ),
    ]


class _Authentications(Collector):
    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        text = "How often a credential was right."
        family = CounterMetricFamily("lakelog_authentications", text, labels=["method"])
        for method, count in self._counts().items():
            family.add_metric([method], count)
        yield family


class _Schemas(Collector):
    def __init__(self, counts: Callable[[], Mapping[str, SourceCounts]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        looked, changed, unreadable = (
            CounterMetricFamily(f"lakelog_schema_{name}", text, labels=labels)
            for name, text, labels in (
                ("lookups", "Schemas that were looked up by id.", ["source", "outcome"]),
                ("changed_ids", "Ids that were given another schema.", ["source"]),
                (
                    "unreadable",
                    "Records, objects and answers without a schema that can be used.",
                    ["source"],
                ),
            )
        )
        for source, counts in self._counts().items():
            for outcome in ("found", "unknown", "failed"):
                looked.add_metric([source, outcome], getattr(counts, outcome))
            changed.add_metric([source], counts.changed)
            unreadable.add_metric([source], counts.unreadable)
        return iter((looked, changed, unreadable))


class _Tables(Collector):
    def __init__(self, sizes: Callable[[], Iterable[TableSize]]) -> None:
        self._sizes = sizes

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return _families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        totals: dict[str, list[int]] = {}
        for size in self._sizes():
            known = size.topic in totals or len(totals) < TOPIC_LABELS_MAX
            total = totals.setdefault(size.topic if known else OTHER_TOPICS, [0, 0, 0])
            for i, value in enumerate((size.segments, size.size_bytes, size.leading)):
                total[i] += value
        for i, family in enumerate(_families()):
            for topic, total in totals.items():
                family.add_metric([topic], total[i])
            yield family


def _families() -> tuple[GaugeMetricFamily, ...]:
    return (
        GaugeMetricFamily("lakelog_segments", "Segments of open partitions.", labels=["topic"]),
        GaugeMetricFamily("lakelog_stored_bytes", "Bytes in those segments.", labels=["topic"]),
        GaugeMetricFamily("lakelog_leading", "Partitions led by this gateway.", labels=["topic"]),
    )
