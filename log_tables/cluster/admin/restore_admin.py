"""Records brought back that DeleteRecords or retention has deleted, as long as their files are there."""

from collections.abc import Iterator
from dataclasses import dataclass

from log_tables.cluster.config import TopicConfig
from log_tables.cluster.topic import Topic
from log_tables.errors import Conflict, InvalidArgument
from log_tables.partition.partition import Partition
from log_tables.table.first_segments import too_many, too_old
from log_tables.table.restore import IsBefore, Past, check_restorable, look_back


@dataclass(frozen=True, slots=True)
class Restoration:
    """A partition, where its log begins, and what a restore would bring back."""

    partition: int
    log_start: int
    past: Past


def wanted(version: int | None, at_ms: int | None) -> IsBefore:
    """The state to restore: the one of a `version` of a table, or of a time, in milliseconds since 1970.

    Raises InvalidArgument unless one of them is given.
    """
    if (version is None) == (at_ms is None):
        raise InvalidArgument("say which state to restore: a version or a time, and not both")
    if version is not None:
        return lambda each, _: each is not None and each <= version
    return lambda _, time_ms: time_ms <= (at_ms or 0)


def plan_restore(
    topic: Topic, now_ms: int, is_before: IsBefore, partition: int | None = None
) -> list[Restoration]:
    """Look what `restore_topic` would do; nothing is changed. Raises as that."""
    topic.check_own()
    numbers = range(topic.partition_count) if partition is None else (partition,)
    return [*_plans(topic, now_ms, is_before, numbers)]


def _plans(
    topic: Topic, now_ms: int, is_before: IsBefore, numbers: range | tuple[int, ...]
) -> Iterator[Restoration]:
    for number in numbers:
        log = topic.partition(number)
        past = look_back(log.table, is_before)
        check_restorable(log.table, past)
        _check_retention(topic.name, topic.config, log, past, now_ms)
        yield Restoration(number, log.log_start, past)


def _check_retention(name: str, config: TopicConfig, log: Partition, past: Past, now_ms: int) -> None:
    """Raise Conflict where retention would delete again, at its next run, what a restore brings back."""
    if not past.segments:
        return
    segments = (*past.segments, *log.snapshot.segments)
    for setting, gone in (
        ("retention.ms", too_old(segments, config.retention_ms, now_ms)),
        ("retention.bytes", too_many(segments, config.retention_bytes)),
    ):
        if gone:
            raise Conflict(
                f"{setting}={config[setting]} of topic {name} would delete what comes back at once; raise it "
                f"first, with `lakelog topic alter {name} --config {setting}=…`"
            )


def restore_topic(
    topic: Topic, now_ms: int, is_before: IsBefore, partition: int | None = None
) -> list[Restoration]:
    """Let the logs of a topic, or of one `partition`, begin where they did; returns what was brought back.

    Raises Conflict where the log does not reach so far back, a file is gone, or retention would delete the
    records again; MirroredTopic, UnknownPartition.
    """
    plans = plan_restore(topic, now_ms, is_before, partition)
    for plan in plans:
        topic.partition(plan.partition).restore(plan.past)
    return plans
