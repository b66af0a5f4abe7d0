"""Objects that are put under a root once are there in the end, although S3 may say so too early."""

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.root_location import RootLocation, locate, note_location
from log_tables.cluster.schema_files import KeptSchemas
from log_tables.partition.remote import RemoteRoot
from log_tables.schemas.schema import Schema, SchemaKind
from log_tables.store.store import open_store
from log_tables.testing import Failure, Fault, FaultyStore, nothing_landed, repeated

ONCE = ("put_if_absent",)
failures = pytest.mark.parametrize("failure", [nothing_landed, repeated])


def failing(failure: Failure) -> FaultyStore:
    return FaultyStore(open_store("memory://"), [Fault(1, failure, ONCE)])


@failures
def test_the_location_of_a_root_is_noted(failure: Failure) -> None:
    store = failing(failure)
    note_location(store)
    assert locate(store) is RootLocation.HERE


@failures
def test_a_remote_root_is_marked(failure: Failure) -> None:
    store = failing(failure)
    RemoteRoot("memory://", "a cluster", ManualClock(), lambda: store).mark()
    assert b"a cluster" in [store.get(item.path) for item in store.list("")]


@failures
def test_a_schema_is_kept(failure: Failure) -> None:
    store, schema = failing(failure), Schema(SchemaKind.AVRO, '"int"')
    kept = KeptSchemas(store, "https://registry.test")
    assert kept.keep(17, schema) == schema
    assert kept.read(17) == schema
