"""Schemas of a topic in which a registry keeps them, as Confluent's and Karapace's do, whatever it meets."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidConfig, UnknownTopic
from log_tables.partition.partition import Partition
from log_tables.record import Record
from log_tables.schemas.registry import Registry
from log_tables.schemas.schema import Schema, SchemaKind
from log_tables.segments.rewrite import compact_by_key
from log_tables.store.store import Store, open_store
from log_tables.testing import Fault, FaultyStore, unavailable
from tests.kit.clusters import another
from tests.kit.registry_records import (
    clears_subject,
    deletes_subject,
    karapace_registers,
    karapace_removes,
    others,
    put_records,
    registers,
    removes,
)

SCHEMAS = "_schemas"
SOURCE = f"topic:{SCHEMAS}"
INT, LONG = Schema(SchemaKind.AVRO, '"int"'), Schema(SchemaKind.AVRO, '"long"')
GUID = "89791762-2336-4186-9674-299b90a802e2"


@pytest.fixture
def partition(cluster: Cluster) -> Partition:
    return create_topic(cluster, SCHEMAS, 1, {"cleanup.policy": "compact"}).partition(0)


def registry_of(cluster: Cluster) -> Registry:
    found = cluster.schema_sources.registry(SOURCE)
    assert found is not None
    return found


def compact(partition: Partition) -> None:
    """Compact all that is there, and keep no tombstone."""
    partition.refresh()
    compact_by_key(partition.table, "zstd", delete_retention_ms=0)


def test_records_of_both_registries_are_schemas_by_id(cluster: Cluster, partition: Partition) -> None:
    put_records(
        partition,
        [
            *others(),
            registers("a-value", 1, 1, INT.text, guid=GUID, schemaType="AVRO", metadata={"properties": {}}),
            karapace_registers("b-value", 1, 2, "{}", schemaType="JSON"),
            karapace_registers("c-value", 1, 3, "P", schemaType="PROTOBUF", references=[]),
        ],
    )
    registry = registry_of(cluster)
    assert registry.known(1) is None, "nothing is read before somebody asks"
    registry.look_up([1])
    found = [registry.known(each) for each in (1, 2, 3, GUID, 4)]
    assert found == [INT, Schema(SchemaKind.JSON, "{}"), Schema(SchemaKind.PROTOBUF, "P"), INT, None]
    assert registry.counts.unreadable == 0
    assert registry.subjects() == ["a-value", "b-value", "c-value"]
    assert registry.find("a-value", Schema(SchemaKind.AVRO, ' "int" ')) == registry.registered("a-value", 1)


def test_a_schema_is_there_as_soon_as_its_record_is_and_those_unknown_cost_one_look_a_second(
    store: Store, clock: ManualClock
) -> None:
    watched = FaultyStore(store)
    cluster = Cluster.open(watched, clock, "http://first")
    partition = create_topic(cluster, SCHEMAS, 1).partition(0)
    elsewhere = create_topic(another(cluster, store), "other").partition(0)  # follows the same root
    assert elsewhere.high_watermark == 0
    put_records(partition, [registers("s", 1, 1, INT.text)])
    registry = registry_of(another(cluster, watched))
    registry.look_up([1])
    watched.calls.clear()
    for _ in range(400):
        registry.look_up([99])
        clock.advance(10)
    looks = [each for each in watched.calls if each.path.startswith(f"topics/{SCHEMAS}/")]
    assert 4 <= len(looks) <= 8
    put_records(partition, [registers("s", 2, 2, LONG.text)])
    registry.look_up([99, 2])
    assert registry.known(2) == LONG
    assert registry.reason(99) == "topic _schemas has no schema 99"


def test_what_is_deleted_leaves_its_subject_and_stays_known(cluster: Cluster, partition: Partition) -> None:
    put_records(partition, [registers("s", n, n, f'{{"type":"fixed","size":{n}}}') for n in (1, 2, 3)])
    registry = registry_of(cluster)
    assert registry.versions("s") == [1, 2, 3]
    put_records(partition, [registers("s", 2, 2, '{"type":"fixed","size":2}', deleted=True)])
    assert registry.versions("s") == [1, 3]
    put_records(partition, [deletes_subject("s", 3)])
    assert (registry.versions("s"), registry.subjects(), registry.registered("s")) == ([], [], None)
    put_records(partition, [clears_subject("s"), removes("s", 1), registers("s", 4, 9, LONG.text)])
    latest = registry.registered("s")
    assert latest is not None
    assert (latest.version, latest.schema_id) == (4, 9)
    assert [registry.known(each) is not None for each in (1, 2, 3, 9)] == [True] * 4


def test_karapace_deletes_for_ever_by_an_empty_value(cluster: Cluster, partition: Partition) -> None:
    put_records(partition, [karapace_registers("s", n, n, f'{{"type":"fixed","size":{n}}}') for n in (1, 2)])
    registry = registry_of(cluster)
    assert registry.versions("s") == [1, 2]
    put_records(partition, [karapace_removes("s", 2)])
    assert registry.versions("s") == [1]
    assert registry.known(2) is not None
    put_records(partition, [deletes_subject("s", 1), karapace_removes("s", 1)])
    assert registry.subjects() == []
    assert registry.counts.unreadable == 0


def test_karapace_may_take_over_a_topic_and_writes_known_schemas_in_its_own_way(
    cluster: Cluster, partition: Partition
) -> None:
    avro = '{"type": "record", "name": "r", "fields": []}'
    put_records(
        partition,
        [
            registers("a", 1, 1, avro),
            registers("p", 1, 2, 'syntax = "proto3"; // of a flight', schemaType="PROTOBUF"),
            karapace_registers("b", 1, 1, '{"fields":[],"name":"r","type":"record"}'),
            karapace_registers("p", 1, 2, 'syntax = "proto3";', schemaType="PROTOBUF", deleted=True),
        ],
    )
    registry = registry_of(cluster)
    assert (registry.versions("a"), registry.versions("b"), registry.versions("p")) == ([1], [1], [])
    assert registry.counts.changed == 0
    assert registry.known(1) == Schema(SchemaKind.AVRO, avro)


def test_an_id_keeps_its_first_text_and_the_change_is_said_once(
    cluster: Cluster, partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    put_records(partition, [registers("s", 1, 1, INT.text)])
    registry = registry_of(cluster)
    registry.look_up([1])
    put_records(partition, [registers("s", 1, 1, LONG.text), registers("t", 1, 1, LONG.text)])
    assert registry.subjects() == ["s"]
    assert registry.known(1) == INT
    assert registry.counts.changed == 1
    assert caplog.text.count("gives the id 1, which names another schema, to version 1 of 's'") == 1


GARBAGE = [
    Record(b"{}", None),
    Record(b"{}", b"\x00\xff"),
    Record(b"{}", b"[" * 100_000),
    Record(b"nonsense", b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'),
    Record(b'{"subject":"t","version":1,"id":1,"schema":"{}"}', registers("s", 1, 1, "{}").key),
    registers("s", 0, 1, "{}"),
    registers("s", 1, -1, "{}"),
    registers("s", 1, 2**32, "{}"),
    registers("s", 1, 1, "{}", schemaType="XML"),
    registers("s", 1, 1, "{}", references=[{"name": "x"}]),
    Record(b"{}", b'{"keytype":"SCHEMA","magic":1}'),
    Record(b'{"subject":"s","version":"x"}', b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'),
]


def test_a_stranger_s_records_are_counted_and_left_out(cluster: Cluster, partition: Partition) -> None:
    put_records(partition, [*GARBAGE, registers("s", 1, 1, INT.text)])
    registry = registry_of(cluster)
    registry.look_up([1])
    assert registry.known(1) == INT
    assert registry.counts.unreadable == len(GARBAGE)


def test_references_are_texts_and_what_is_missing_makes_no_schema_until_it_comes(
    cluster: Cluster, partition: Partition
) -> None:
    base = {"name": "com.Base", "subject": "base", "version": 1}
    middle = {"name": "com.Middle", "subject": "middle", "version": 1}
    put_records(
        partition,
        [
            registers("middle", 1, 2, "M", references=[base]),
            registers("top", 1, 3, "T", references=[middle, base]),
            registers("loop", 1, 4, "L", references=[{"name": "l", "subject": "loop", "version": 1}]),
        ],
    )
    registry = registry_of(cluster)
    registry.look_up([2, 3, 4])
    assert [registry.known(each) for each in (2, 3, 4)] == [None] * 3
    assert "version 1 of 'base', which is not known" in str(registry.reason(3))
    assert "refers to itself" in str(registry.reason(4))
    put_records(partition, [registers("base", 1, 1, "B")])
    registry.look_up([5])
    assert registry.known(3) == Schema(SchemaKind.AVRO, "T", (("com.Base", "B"), ("com.Middle", "M")))
    assert registry.known(4) is None


def test_a_schema_of_another_context_has_its_guid_alone(cluster: Cluster, partition: Partition) -> None:
    base = [{"name": "b", "subject": "base", "version": 1}]
    put_records(
        partition,
        [
            registers(":.a:base", 1, 1, "B"),
            registers(":.a:s", 1, 2, "S", references=base, guid=GUID),
            registers(":.:t", 1, 1, INT.text),
        ],
    )
    registry = registry_of(cluster)
    registry.look_up([1, 2, GUID])
    assert registry.known(1) == INT
    assert registry.known(2) is None
    assert registry.known(GUID) == Schema(SchemaKind.AVRO, "S", (("b", "B"),))


def test_a_topic_that_is_deleted_made_again_or_truncated_takes_no_schema_away(
    cluster: Cluster, partition: Partition
) -> None:
    put_records(partition, [registers("s", 1, 1, INT.text), registers("t", 1, 2, LONG.text)])
    registry = registry_of(cluster)
    registry.look_up([1])
    partition.truncate(1)
    assert registry.subjects() == ["t"]
    delete_topic(cluster, SCHEMAS)
    registry.look_up([7])
    assert "there is no topic '_schemas'" in str(registry.reason(7))
    with pytest.raises(UnknownTopic):
        registry.subjects()
    again = create_topic(cluster, SCHEMAS).partition(0)
    assert registry.subjects() == []
    put_records(again, [registers("u", 1, 1, LONG.text), registers("u", 2, 3, LONG.text)])
    registry.look_up([3])
    assert [registry.known(each) for each in (1, 2, 3)] == [INT, LONG, LONG]
    assert registry.counts.changed == 1


def test_a_topic_with_several_partitions_is_none_of_a_registry(cluster: Cluster) -> None:
    create_topic(cluster, SCHEMAS, 2)
    registry = registry_of(cluster)
    registry.look_up([1])
    assert "topic _schemas has 2 partitions" in str(registry.reason(1))
    with pytest.raises(InvalidConfig, match="a topic of one"):
        cluster.schema_location(SOURCE)


def test_a_store_that_is_away_raises_nothing_and_is_read_on_when_it_is_back(
    cluster: Cluster, partition: Partition, store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    put_records(partition, [registers("s", 1, 1, INT.text)])
    faults = [Fault(1, unavailable, ("get", "head", "list", "get_range"), f"{SCHEMAS}/") for _ in range(2)]
    registry = registry_of(another(cluster, FaultyStore(store, faults)))
    for _ in range(3):
        registry.look_up([1])
        clock.advance(1_000)
    assert registry.known(1) == INT
    assert registry.counts.failed in (1, 2)
    assert caplog.text.count("schemas of topic _schemas cannot be read") == 1


def test_a_task_in_another_process_reads_the_partition(tmp_path: Path) -> None:
    cluster = Cluster.open(open_store(tmp_path), SystemClock(), "http://first")
    partition = create_topic(cluster, SCHEMAS).partition(0)
    put_records(partition, [registers("s", 1, 1, INT.text)])
    schemas = pickle.loads(pickle.dumps(cluster.schema_location(SOURCE))).open()
    schemas.look_up([1])
    assert schemas.known(1) == INT
    assert cluster.schema_location("") is not None


# A model: what a registry's own reader would have, and every id's first text.

TEXTS = [f'{{"type":"fixed","name":"f","size":{size}}}' for size in range(4)]
SUBJECTS = ["s", "t"]
Step = tuple[str, str, int, int]
"""An act, its subject, a version, and the id of a schema, or the number of a record that is garbage."""

_steps = st.tuples(
    st.sampled_from(["register", "register", "soft-delete", "remove", "delete", "clear", "garbage"]),
    st.sampled_from(SUBJECTS),
    st.integers(1, 3),
    st.integers(0, 3),
)


def written(step: Step) -> Record:
    act, subject, version, number = step
    match act:
        case "remove":
            return removes(subject, version)
        case "delete":
            return deletes_subject(subject, 3)
        case "clear":
            return clears_subject(subject)
        case "garbage":
            return GARBAGE[number]
    return registers(subject, version, number, TEXTS[number], deleted=act == "soft-delete")


def live(steps: Sequence[Step], subject: str) -> dict[int, int]:
    """The schemas of the versions of `subject` that are not deleted, after all `steps`."""
    found: dict[int, int] = {}
    for act, named, version, number in steps:
        if named == subject and act == "register":
            found[version] = number
        elif named == subject and act in ("soft-delete", "remove"):
            found.pop(version, None)
        elif named == subject and act == "delete":
            found.clear()
    return found


@settings(max_examples=40)
@given(parts=st.lists(st.tuples(st.lists(_steps, max_size=8), st.booleans()), max_size=5))
def test_a_follower_has_what_the_registry_has_also_over_compactions(
    parts: list[tuple[list[Step], bool]],
) -> None:
    cluster = Cluster.open(open_store("memory://"), ManualClock(), "http://first")
    partition = create_topic(cluster, SCHEMAS).partition(0)
    followers = [registry_of(cluster), registry_of(another(cluster))]
    done: list[Step] = []
    for place, (steps, compacted) in enumerate(parts):
        if steps:
            put_records(partition, [written(step) for step in steps])
            done += steps
        followers[0].subjects()
        if compacted:
            compact(partition)
        for registry in followers[: 1 + place % 2]:  # the second sleeps over every other part
            for subject in SUBJECTS:
                expected = live(done, subject)
                assert [*registry.versions(subject)] == sorted(expected)
                for version, number in expected.items():
                    registered = registry.registered(subject, version)
                    assert registered is not None
                    assert registered.text == TEXTS[number]
    ids = {number for act, _, _, number in done if act in ("register", "soft-delete")}
    assert {number for number in range(4) if followers[0].known(number) is not None} == ids
