"""The background work of a gateway: follow changed topics, write checkpoints, clean up.

A duty is a function that a thread of its own calls again and again, off the event loop and the append path.
Every duty is safe to kill at any point.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from api.gateway import ROOM, Gateway
from api.metrics import TableSize
from api.process.credential_duty import CredentialDuty, KeyReportDuty
from api.process.fold_duty import FoldDuty
from api.process.lag_metrics import LagFollower, committed_partitions
from api.process.mirror_metrics import MirrorFollower
from api.samples import SAMPLE_S, SampleLog
from ingest.periodic_task import FailureLog
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.busy_tables import BusyTables
from log_tables.cluster.cluster import Cluster
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import TEMPORARY_MAX_AGE_MS
from log_tables.partition.partition import Partition
from log_tables.segments.rewrite import compact_if_dirty
from log_tables.store.store import requests_are_paid
from log_tables.topic_table.topic_table import TopicTable

CHECKPOINT_INTERVAL_S = 1.0
"""How often partitions are asked whether a checkpoint is due."""

COMPACT_INTERVAL_S = 3.0
"""How often it is asked whether the log of consumer groups has become dirty: a look at memory."""

KEYS_INTERVAL_S = 10.0
"""How often it is asked whether the keys of an OIDC provider are old."""

USES_INTERVAL_S = 10.0
"""How often it is looked which keys were used."""

CLEAN_INTERVAL_S = 600.0
"""How often logs are cleaned: that lists a whole log, never less than an hour of commits."""

SWEEP_INTERVAL_S = 60.0
"""How often files of deleted topics are looked for; by default they stay for a minute."""

DEBT_INTERVAL_S = 1.0
"""How often it is looked how many files wait for a merge: some microseconds for each partition, and 0.5 for
each segment of one that has changed."""

LAGS_INTERVAL_S = 5.0
"""How often the ends of partitions are looked for that groups read here and other processes write."""

BUSY_INTERVAL_S = 1.0
"""How often it is noted which tables are busy, where requests are paid and somebody replicates."""

MIRRORS_INTERVAL_S = 5.0
"""How often the reports of the processes of mirrors and of standbys are looked at, where there are any."""

ROOM_INTERVAL_S = 2.0
"""How often it is looked how much room the disk of the root has."""

DUTY_END_S = 5.0
"""How long a stopping gateway waits for a duty: a longer checkpoint is repeated later."""


class Duty:
    """A thread that calls `work`, waits `interval_s` seconds, and so on until `stop`."""

    def __init__(
        self, name: str, interval_s: float, work: Callable[[], object], failures: FailureLog
    ) -> None:
        self._name, self._interval_s, self._work, self._failures = name, interval_s, work, failures
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"duty-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after what it is doing."""
        self._stopping.set()

    def join(self, timeout_s: float) -> None:
        """Wait until it has ended, or for `timeout_s` seconds."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._failures.catch(self._name):  # a gateway that cannot clean up can still serve
                self._work()
            self._stopping.wait(self._interval_s)


def duties(gateway: Gateway, folds: FoldDuty, figures: SampleLog, mirrors: MirrorFollower) -> list[Duty]:
    """All duties of `gateway`, not yet started."""
    cluster, failures = gateway.cluster, gateway.failures
    refresh_interval_s = gateway.settings.refresh_interval_ms / 1_000
    fold_interval_s = gateway.settings.topic_table_interval_ms / 1_000
    authenticator = gateway.access.authenticator
    lags, read = LagFollower(gateway.clock), partial(committed_partitions, gateway.shard_manager, cluster)
    secured = [] if authenticator is None else [CredentialDuty(cluster, authenticator)]
    used = [] if authenticator is None else [KeyReportDuty(cluster, authenticator)]
    tables = BusyTables(cluster.store, gateway.clock)
    busy = (
        [Duty("busy", BUSY_INTERVAL_S, lambda: note_busy(gateway, tables), failures)]
        if requests_are_paid(cluster.store.url)
        else []
    )
    return [
        *(Duty("credentials", refresh_interval_s, each.run, failures) for each in secured),
        *(Duty("uses", USES_INTERVAL_S, each.run, failures) for each in used),
        *(
            Duty("keys", KEYS_INTERVAL_S, each.refresh_keys, failures)
            for each in [authenticator]
            if each is not None
        ),
        *(Duty("clean credentials", CLEAN_INTERVAL_S, each.clean, failures) for each in secured),
        Duty("refresh", refresh_interval_s, lambda: follow(gateway), failures),
        Duty("checkpoint", CHECKPOINT_INTERVAL_S, lambda: checkpoint(cluster), failures),
        Duty("compact", COMPACT_INTERVAL_S, lambda: compact(cluster), failures),
        Duty("fold", fold_interval_s, folds.run, failures),
        Duty("clean", CLEAN_INTERVAL_S, lambda: clean(cluster), failures),
        Duty("samples", SAMPLE_S, figures.sample, failures),
        Duty("debt", DEBT_INTERVAL_S, lambda: gateway.writer.debt.count(cluster), failures),
        Duty("lags", LAGS_INTERVAL_S, lambda: lags.follow(read()), failures),
        Duty("mirrors", MIRRORS_INTERVAL_S, mirrors.follow, failures),
        Duty("standbys", MIRRORS_INTERVAL_S, gateway.standbys.follow, failures),
        *busy,
        Duty("sweep", SWEEP_INTERVAL_S, lambda: sweep(cluster), failures),
        Duty(ROOM, ROOM_INTERVAL_S, gateway.writer.room.look, failures),
    ]


def note_busy(gateway: Gateway, tables: BusyTables) -> None:
    """Say which tables are written to, if somebody replicates: to look at all of them would be dear."""
    if gateway.standbys.is_any:
        tables.note(
            str(gateway.brokers.id),
            {
                partition.directory: partition.snapshot.version
                for topic in gateway.cluster.topics(include_internal=True)
                for _, partition in topic.opened()
            },
        )


def follow(gateway: Gateway) -> None:
    """Follow topics, gateways and rules of access, as the metadata log has them."""
    gateway.cluster.refresh()
    gateway.access.follow()


def checkpoint(cluster: Cluster) -> None:
    """Write the checkpoints that are due."""
    written = False
    for partition in _led(cluster):
        if partition.table.checkpoint_due():
            partition.checkpoint()
            written = True
    for table in _tables(cluster):
        if table.checkpoint_is_due():
            table.checkpoint(0)
            written = True
    if written:
        # malloc keeps what a checkpoint was made in, which is a multiple of it.
        pa.default_memory_pool().release_unused()


def compact(cluster: Cluster) -> None:
    """Keep the logs of consumer groups short: the latest record of each key is all that a restart needs."""
    topic = cluster.cached_topic(CONSUMER_OFFSETS)
    for _, partition in [] if topic is None else topic.opened():
        if partition.leading:
            compact_if_dirty(partition.table, partition.config.compression)


def clean(cluster: Cluster) -> None:
    """Delete log files that no reader needs any more, and what killed puts left behind."""
    for partition in _opened(cluster):
        if partition.leading:
            if not partition.table.is_clean:  # an idle table is not listed again and again
                partition.table.delete_expired_log()
        else:
            partition.prune()  # its leader's checkpoints forget what is old, and nobody tells us
    for table in _tables(cluster):
        if not table.is_clean:
            table.clean()
    cluster.store.remove_temporaries(TEMPORARY_MAX_AGE_MS)


def table_sizes(cluster: Cluster) -> Iterator[TableSize]:
    """The sizes of the open partitions, as far as they are known."""
    for topic in cluster.topics(include_internal=True):
        for _, partition in topic.opened():
            segments = partition.snapshot.segments
            size_bytes = sum(segment.size for segment in segments)
            yield TableSize(topic.name, len(segments), size_bytes, partition.leading)


def _tables(cluster: Cluster) -> Iterator[TopicTable]:
    """The tables over topics that this process folds."""
    return (table for topic in cluster.topics() if (table := topic.opened_table()) is not None)


def _led(cluster: Cluster) -> Iterator[Partition]:
    """The partitions that this process leads; the leaders of the others look after them."""
    return (partition for partition in _opened(cluster) if partition.leading)


def _opened(cluster: Cluster) -> Iterator[Partition]:
    yield cluster.metadata_log.partition
    for topic in cluster.topics(include_internal=True):
        yield from (found for _, found in topic.opened())
