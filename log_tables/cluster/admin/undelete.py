"""Deleted topics: which can be brought back, and how; and their space, freed before its time.

The record of a topic is the commit point here, too. An undelete writes it first; then it lets the tables go
on, whose logs the deletion has ended. If it dies in between, the next process that uses the topic does that
(`Cluster.revive`). Once a record no longer names what an undelete needs, the files may go.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from log_tables.cluster.access_record import AccessRules, acl_record
from log_tables.cluster.acl import Acl, PatternType, Permission, ResourceType
from log_tables.cluster.admin.topic_admin import end_deleted, free_incarnation, last_life
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.metadata_history import acls_at_deletion
from log_tables.cluster.metadata_log import DeletedTopic, TopicRecord
from log_tables.cluster.topic import Topic, check_writable
from log_tables.errors import CorruptLog, Damaged, TopicDeleted, TopicExists, UnknownTopic, begun
from log_tables.layout import log_directory
from log_tables.limits import TABLES_AT_ONCE
from log_tables.record import Record

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deleted topic that can be brought back until `until_ms`; times in milliseconds since 1970.

    `records` and `bytes` are what it held here when it was deleted.
    """

    name: str
    topic_id: str
    partitions: int
    records: int
    bytes: int
    deleted_ms: int
    until_ms: int


def deletions(cluster: Cluster) -> list[Deletion]:
    """Every deleted topic that can be brought back, as last refreshed, by name and time; no I/O."""
    found = [
        _deletion(record, number)
        for record in cluster.metadata_log.topics()
        for number in record.kept.keys() & record.deleted.keys()
    ]
    return sorted(found, key=lambda each: (each.name, each.deleted_ms))


def _deletion(record: TopicRecord, number: int) -> Deletion:
    kept = record.kept[number]
    return Deletion(
        record.name,
        kept.topic_id,
        kept.partitions,
        kept.records,
        kept.bytes,
        record.deleted[number],
        kept_until_ms(record, number),
    )


def kept_until_ms(record: TopicRecord, number: int) -> int:
    """When a deleted incarnation that can be brought back loses that, in milliseconds since 1970."""
    return record.deleted[number] + TopicConfig(record.kept[number].configs).deleted_kept_ms


def find_deletion(cluster: Cluster, name: str, topic_id: str | None = None) -> Deletion:
    """The newest deleted topic `name`, or the one with `topic_id`. Raises UnknownTopic."""
    return _deletion(*_found(cluster, name, topic_id))


def _found(cluster: Cluster, name: str, topic_id: str | None) -> tuple[TopicRecord, int]:
    record = cluster.metadata_log.topic(name)
    kept = {} if record is None else record.kept
    numbers = [number for number, each in sorted(kept.items()) if topic_id in (None, each.topic_id)]
    if record is None or not numbers:
        with_id = "" if topic_id is None else f" with the id {topic_id[:40]}"
        raise UnknownTopic(
            f"there is no deleted topic {name[:300]!r}{with_id} to bring back: its files are gone, if it "
            "ever was; list those there are with `lakelog topic list --deleted`"
        )
    return record, numbers[-1]


def undelete_topic(
    cluster: Cluster, name: str, topic_id: str | None = None, new_name: str | None = None
) -> Topic:
    """Bring back the newest deleted topic `name`, or the one with `topic_id`: with its records, settings and
    id, under `new_name` if that is given. ACLs that name it, were there when it was deleted, and still are,
    are then those of the new name, too; so is whatever forbids.

    A repeat finds the topic and changes nothing. Raises UnknownTopic, TopicExists, InvalidTopicName;
    CorruptLog when a table is missing.
    """
    wanted = name if new_name is None else new_name
    check_writable(wanted)
    cluster.refresh()
    try:
        record, number = _found(cluster, name, topic_id)
    except UnknownTopic:
        topic = _revived_before(cluster, wanted, topic_id)
        if topic is None:
            raise
    else:
        _check_free(cluster, name, wanted)
        before = {each: last_life(cluster, each) for each in (name, wanted)}
        for each in before:
            end_deleted(cluster, each)  # the process that deleted it may have died before that
        _check_tables(cluster, record, number)
        expected = record.kept[number]

        def decide() -> list[TopicRecord]:
            known = cluster.metadata_log.topic(name)
            if {each: last_life(cluster, each) for each in before} != before:
                known = None
            if known is None or known.kept.get(number) != expected:
                raise UnknownTopic(
                    f"topic {name!r} was brought back, made again or purged at the same time; list the topics"
                    ", and the deleted ones with `lakelog topic list --deleted`"
                )
            return _restored(cluster, known, number, wanted)

        then = _acls_then(cluster, name, expected.topic_id) if wanted != name else frozenset[Acl]()
        cluster.metadata_log.change_topics(name, decide, partial(_followed, name, wanted, then))
        topic = cluster.topic(wanted)
    with begun(f"topic {wanted!r} was brought back"):
        cluster.metadata_log.make_durable()
        cluster.revive(topic)
    return topic


def _acls_then(cluster: Cluster, name: str, topic_id: str) -> frozenset[Acl]:
    """The ACLs of when the topic was deleted; none where the log does not say so any more."""
    if not any(_is_about(acl, name) for acl in cluster.metadata_log.access.acls):
        return frozenset()
    return acls_at_deletion(cluster.metadata_log.partition, name, topic_id) or frozenset()


def _is_about(acl: Acl, name: str) -> bool:
    """Whether an ACL names the topic, and no others."""
    is_literal = acl.resource_type == ResourceType.TOPIC and acl.pattern_type == PatternType.LITERAL
    return is_literal and acl.resource_name == name


def _followed(name: str, wanted: str, then: Collection[Acl], rules: AccessRules) -> list[Record]:
    """The ACLs of the topic `name` that are those of its new name `wanted`, too.

    What was allowed since it was deleted is about another topic; what was forbidden since counts.
    """
    if wanted == name:
        return []
    known = [acl for acl in rules.acls if _is_about(acl, name)]
    copied = [acl for acl in known if acl in then or acl.permission == Permission.DENY]
    made = {replace(acl, resource_name=wanted) for acl in copied}
    return [*map(acl_record, sorted(made - rules.acls))]


def _revived_before(cluster: Cluster, wanted: str, topic_id: str | None) -> Topic | None:
    """The topic that an undelete which is repeated has brought back."""
    topic = cluster.cached_topic(wanted)
    if topic is None or not topic.revived or topic_id not in (None, topic.topic_id):
        return None
    return topic


def _check_free(cluster: Cluster, name: str, wanted: str) -> None:
    if cluster.cached_topic(wanted) is not None:
        raise TopicExists(
            f"a topic {wanted!r} exists; bring the deleted topic {name!r} back under another name, with --as "
            "NAME"
        )


def _check_tables(cluster: Cluster, record: TopicRecord, number: int) -> None:
    """Raise Damaged when a table of the deleted incarnation is missing, as in a copy of the root."""
    kept = record.kept[number]
    looked = cluster.topic_of(_live_record(record, number, kept, number))

    def check(partition: int) -> None:
        try:
            looked.partition(partition)
        except (Damaged, TopicDeleted):
            raise CorruptLog(
                f"topic {record.name!r} cannot be brought back whole: the table of partition {partition} in "
                f"{looked.directory} is missing or damaged; in a copy of a root are no deleted topics"
            ) from None

    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="look") as pool:
        for _ in pool.map(check, range(kept.partitions)):
            pass  # raises what went wrong


def _live_record(record: TopicRecord, number: int, kept: DeletedTopic, incarnation: int) -> TopicRecord:
    """The record of the topic with the tables of incarnation `number` as its `incarnation`."""
    home = record.directory_of(number)
    homes = without(record.homes, number)
    made = replace(
        record,
        topic_id=kept.topic_id,
        incarnation=incarnation,
        partitions=kept.partitions,
        configs=kept.configs,
        live=True,
        deleted=without(record.deleted, number),
        columns=kept.columns,
        mirrored=None,
        kept=without(record.kept, number),
        revived=kept.revived + 1,
        homes=homes,
    )
    return made if made.directory == home else replace(made, homes={**homes, incarnation: home})


def _restored(cluster: Cluster, known: TopicRecord, number: int, wanted: str) -> list[TopicRecord]:
    """The records by which the deleted incarnation `number` of `known` is the topic `wanted`."""
    expected = known.kept[number]
    if wanted == known.name:
        incarnation = number if number == known.incarnation else free_incarnation(cluster, wanted)
        return [_live_record(known, number, expected, incarnation)]
    left = replace(
        known,
        deleted=without(known.deleted, number),
        kept=without(known.kept, number),
        homes=without(known.homes, number),
    )
    target = cluster.metadata_log.topic(wanted)
    before = target or TopicRecord(wanted, expected.topic_id, 0, expected.partitions, {}, False)
    moved = replace(before, homes={**before.homes, 0: known.directory_of(number)})
    return [_live_record(moved, 0, expected, free_incarnation(cluster, wanted)), left]


def purge_topic(cluster: Cluster, name: str, topic_id: str | None = None) -> Deletion:
    """Free the space of the newest deleted topic `name`, or of the one with `topic_id`, at once: it cannot be
    brought back any more. Raises UnknownTopic.
    """
    cluster.refresh()
    record, number = _found(cluster, name, topic_id)
    gone = _deletion(record, number)
    if number == record.incarnation:
        end_deleted(cluster, name)
    if not give_up(cluster, record, number, lambda _: True):
        raise UnknownTopic(f"the deleted topic {name!r} was brought back, or purged, at the same time")
    with begun(f"topic {name!r} cannot be brought back any more"):
        remove_data(cluster, record.directory_of(number))
    return gone


def give_up(
    cluster: Cluster, record: TopicRecord, number: int, is_due: Callable[[TopicRecord], bool]
) -> bool:
    """Record that the deleted incarnation `number` cannot be brought back any more, before its files go, if
    that `is_due` by the newest record; returns whether nobody can bring it back from now on.
    """
    expected, at_ms = record.kept[number], record.deleted.get(number)

    def decide() -> list[TopicRecord]:
        known = cluster.metadata_log.topic(record.name)
        if known is None or known.kept.get(number) != expected or known.deleted.get(number) != at_ms:
            return []
        return [replace(known, kept=without(known.kept, number))] if is_due(known) else []

    cluster.metadata_log.change_topics(record.name, decide)
    known = cluster.metadata_log.topic(record.name)
    return known is not None and number in known.deleted and number not in known.kept


def remove_data(cluster: Cluster, directory: str) -> None:
    """Delete the files of the deleted topic at `directory`, here and in the remote root, but those of its
    logs.
    """
    if cluster.remote is not None:
        cluster.remote.remove(directory)
    cluster.store.delete_objects([*_data_files(cluster, directory)])


def _data_files(cluster: Cluster, directory: str) -> Iterator[str]:
    files = (item.path for item in cluster.store.list(f"{directory}/"))
    return (path for path in files if log_directory("") not in path)


def without(items: Mapping[int, _Value], number: int) -> dict[int, _Value]:
    """`items` without that of `number`."""
    return {each: value for each, value in items.items() if each != number}
