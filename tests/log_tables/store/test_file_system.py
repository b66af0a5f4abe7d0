"""The type of a file system, as Linux reports it."""

import sys
from pathlib import Path

import pytest

from log_tables.store.store import Durability, file_system, keeps_order, open_store

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@linux
def test_the_type_is_that_of_the_mount(tmp_path: Path) -> None:
    assert file_system(Path("/proc")) == "proc"
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(tmp_path) == file_system(tmp_path.parent) != ""


def test_of_a_directory_that_cannot_be_opened_nothing_is_known(tmp_path: Path) -> None:
    assert file_system(tmp_path / "missing") == ""
    assert not keeps_order(tmp_path / "missing")


@linux
def test_a_file_system_in_memory_or_of_the_kernel_is_not_relied_on() -> None:
    assert not keeps_order(Path("/proc"))


@pytest.mark.parametrize("durability", ["auto", "strict"])
def test_a_store_relies_on_its_file_system_unless_that_is_refused(
    tmp_path: Path, durability: Durability
) -> None:
    store = open_store(tmp_path, durability=durability)
    store.put_new("t/0", b"x")  # the name of the directory is durable
    relies = durability == "auto" and keeps_order(tmp_path)
    with pytest.raises(KeyError), store.put_new_before("t/1", b"y"):
        raise KeyError  # what was not yet durable is removed, and nothing else
    assert [item.path for item in store.list("t")] == (["t/0"] if relies else ["t/0", "t/1"])
