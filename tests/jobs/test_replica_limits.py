"""Bounds of replication count all that is read and put, whatever the method of the store."""

import inspect

import pytest

from jobs.replica.limited import LimitedStore, Rate
from log_tables.clock import ManualClock
from log_tables.store.store import Store, open_store

BYTES = 1000
METHODS = {
    name: inspect.signature(member)
    for name, member in vars(Store).items()
    if inspect.isfunction(member) and not name.startswith("_")
}
READING = [name for name, signature in METHODS.items() if signature.return_annotation is bytes]
WRITING = [
    name for name, signature in METHODS.items() if "data" in signature.parameters and name != "check_room"
]


def test_there_are_methods_that_read_and_write() -> None:
    assert {"get", "get_range"} <= {*READING}
    assert {"put", "put_if_absent", "put_new", "put_new_before"} <= {*WRITING}


@pytest.mark.parametrize("name", [*READING, *WRITING])
def test_the_bytes_of_each_method_are_counted(name: str) -> None:
    clock, inner = ManualClock(), open_store("memory://limited")
    inner.put("here", b"x" * BYTES)
    store = LimitedStore(inner, Rate(clock, 0), Rate(clock, BYTES))
    begin = clock.monotonic()
    for number in range(3):  # each is paid for by the next one
        if name in READING:
            given = {"start": 0, "length": BYTES}
            extra = [given[each] for each in METHODS[name].parameters if each in given]
            assert len(getattr(store, name)("here", *extra)) == BYTES
        elif name == "put_new_before":
            with store.put_new_before(f"first-{number}", b"") as put:
                put(f"there-{number}", b"x" * BYTES)
        else:
            getattr(store, name)(f"there-{number}", b"x" * BYTES)
    assert clock.monotonic() - begin == pytest.approx(2.0)
