"""`fsck --deep` derives columns again by the schemas that values name, as far as they are known."""

import pytest

from log_tables.clock import ManualClock
from log_tables.columns.declaration import Declaration, parse
from log_tables.partition.partition import Partition
from log_tables.partition.reader import PartitionConfig
from log_tables.root.column_replay import ValueSchemas
from log_tables.root.segment_replay import check_segment
from log_tables.schemas.decoded import Encoding, Format
from log_tables.schemas.framing import prefixed
from log_tables.schemas.schema import NO_SCHEMAS, KnownSchemas, Schemas
from log_tables.segments import rewrite
from log_tables.store.store import open_store
from tests.kit.avro_values import schema_of, written
from tests.kit.partitions import append, new_partition
from tests.kit.tampered import tamper, with_cell

KIND = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
SCHEMA = schema_of(KIND)
ONE, BOTH = KnownSchemas({1: SCHEMA}), KnownSchemas({1: SCHEMA, 2: SCHEMA})
VALUES = [prefixed(1, written(KIND, {"n": 1})), prefixed(2, written(KIND, {"n": 2})), None, b"{}"]


def declared(encoding: Encoding) -> Declaration:
    return Declaration(parse("n bigint").columns, encoding)


NAMED = declared(Encoding(Format.AVRO))
OF_ALL = declared(Encoding(Format.AVRO, SCHEMA))


def appended(schemas: Schemas, columns: Declaration = NAMED) -> Partition:
    config = PartitionConfig(columns=columns, schemas=schemas)
    partition = new_partition(open_store("memory://"), ManualClock(), config)
    append(partition, *VALUES)
    return partition


def problems(partition: Partition, schemas: ValueSchemas) -> list[str]:
    snapshot, table = partition.snapshot, partition.table
    return [
        problem
        for segment in snapshot.segments
        for problem in check_segment(table.store, partition.directory, segment, snapshot.declared, schemas)
    ]


@pytest.mark.parametrize("then", [ONE, BOTH])
@pytest.mark.parametrize("now", [NO_SCHEMAS, ONE, BOTH])
def test_a_schema_may_be_unknown_when_columns_are_made_and_when_they_are_checked(
    then: Schemas, now: Schemas
) -> None:
    assert problems(appended(then), ValueSchemas(now)) == []


def test_a_merge_has_values_of_before_and_after_a_schema_was_known() -> None:
    partition = appended(ONE)
    partition.config = PartitionConfig(columns=NAMED, schemas=BOTH)
    append(partition, *VALUES)
    inputs, table = partition.snapshot.segments, partition.table
    made = rewrite.merge(table.store, partition.directory, inputs, "zstd", ManualClock())
    assert rewrite.commit_merge(table, inputs, made)
    partition.refresh()
    assert [segment.columns for segment in partition.snapshot.segments] == [f"{NAMED.id}?2"]
    assert problems(partition, ValueSchemas(BOTH)) == []


def test_columns_that_are_not_what_the_values_say_are_found() -> None:
    partition = appended(BOTH)
    tamper(partition, with_cell("n", 1, 3))
    (problem,) = problems(partition, ValueSchemas(BOTH))
    assert "the column n" in problem
    assert "from offset 1 on" in problem


def test_an_error_that_says_of_a_known_schema_that_it_is_not_is_found() -> None:
    partition = appended(BOTH)
    tamper(partition, with_cell("value_error", 1, "schema 2 is not known"))
    assert problems(partition, ValueSchemas(BOTH))


def test_the_one_schema_of_a_topic_derives_its_columns_while_it_has_that() -> None:
    partition = appended(NO_SCHEMAS, OF_ALL)
    other = schema_of({**KIND, "name": "other"})
    for only in (SCHEMA, other, None):
        assert problems(partition, ValueSchemas(NO_SCHEMAS, only)) == []
    tamper(partition, with_cell("n", 0, 3))
    assert problems(partition, ValueSchemas(NO_SCHEMAS, SCHEMA))
