"""Schemas that an operator puts under the root as files."""

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.schemas.registry import Registry
from log_tables.schemas.schema import Schema, SchemaKind
from log_tables.store.store import Store

GUID = "89791762-2336-4186-9674-299b90a802e2"


@pytest.fixture
def files(cluster: Cluster) -> Registry:
    found = cluster.schema_sources.registry("files")
    assert found is not None
    return found


def put(store: Store, **texts: str) -> None:
    for name, text in texts.items():
        store.put(f"schemas/files/{name}", text.encode())


def test_the_name_of_a_file_is_its_id_and_its_language(store: Store, files: Registry) -> None:
    put(store, **{"17.avsc": '"int"', "18.proto": "P", "19.json": "{}", f"{GUID}.avsc": '\ufeff"long"'})
    files.look_up([17, 18, 19, GUID])
    assert [files.known(each) for each in (17, 18, 19, GUID)] == [
        Schema(SchemaKind.AVRO, '"int"'),
        Schema(SchemaKind.PROTOBUF, "P"),
        Schema(SchemaKind.JSON, "{}"),
        Schema(SchemaKind.AVRO, '"long"'),
    ]
    assert [*files.subjects()] == []


def test_a_file_may_come_later_and_what_was_read_stays(
    store: Store, files: Registry, clock: ManualClock
) -> None:
    files.look_up([17])
    assert files.reason(17) == "there is no schemas/files/17.avsc, .proto or .json"
    put(store, **{"17.avsc": '"int"'})
    clock.advance(1_000)
    files.look_up([17])
    put(store, **{"17.avsc": '"long"'})
    files.look_up([17])
    assert files.known(17) == Schema(SchemaKind.AVRO, '"int"')


def test_a_file_of_protobuf_has_those_that_it_imports(store: Store, files: Registry) -> None:
    own = 'import "a/b.proto"; // import "none.proto";\nimport "google/protobuf/any.proto";\nmessage M {}'
    put(store, **{"1.proto": own, "a/b.proto": 'import public "c.proto";', "c.proto": "syntax;"})
    put(store, **{"2.proto": 'import "none.proto";', "3.proto": 'import "../../credentials/x";'})
    put(store, **{"4.proto": 'import "5.proto";', "5.proto": 'import "4.proto";'})
    files.look_up([1, 2, 3, 4])
    references = (("c.proto", "syntax;"), ("a/b.proto", 'import public "c.proto";'))
    assert files.known(1) == Schema(SchemaKind.PROTOBUF, own, references)
    assert "imports 'none.proto', which is not in schemas/files/" in str(files.reason(2))
    assert "imports '../../credentials/x', which is not in schemas/files/" in str(files.reason(3))
    assert "refers to itself" in str(files.reason(4))


def test_an_id_of_a_header_reads_no_other_object(store: Store, files: Registry) -> None:
    put(store, x="secret")
    files.look_up(["../files/x", "", "x" * 10_000])
    assert files.known("../files/x") is None
    assert "neither a number nor the text of a UUID" in str(files.reason("../files/x"))


def test_a_file_that_is_no_text_is_left_with_a_reason(store: Store, files: Registry) -> None:
    store.put("schemas/files/1.avsc", b"\xff\xfe")
    files.look_up([1])
    assert files.reason(1) == "schemas/files/1.avsc is not UTF-8"
    assert files.counts.unreadable == 1
    assert check(store).problems == []
