"""A root that is not there, and another cluster's, are told apart from a first start."""

from pathlib import Path

import pytest

from log_tables.clock import SystemClock
from log_tables.errors import InvalidArgument, InvalidConfig, RootMissing, StoreUnavailable
from log_tables.root.opening import open_cluster, open_root

CLOCK = SystemClock()


def made(path: Path) -> str:
    return open_cluster(open_root(str(path), {}, CLOCK), CLOCK).cluster_id


def test_a_root_that_must_exist_is_never_made(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(StoreUnavailable, match="lakelog root create --data"):
        open_root(str(root), {}, CLOCK, must_exist=True)
    root.mkdir()
    with pytest.raises(StoreUnavailable, match="no metadata log"):
        open_root(str(root), {}, CLOCK, must_exist=True)
    assert not [*root.iterdir()]
    cluster_id = made(root)
    store = open_root(str(root), {}, CLOCK, must_exist=True)
    assert open_cluster(store, CLOCK, must_exist=True).cluster_id == cluster_id


def test_a_root_with_a_wrong_name_is_not_one_that_is_missing(tmp_path: Path) -> None:
    for must_exist in (False, True):
        with pytest.raises(InvalidArgument, match="the scheme 'sftp'") as said:
            open_root("sftp://host/root", {}, CLOCK, must_exist=must_exist, create=False)
        assert not isinstance(said.value, RootMissing)
    with pytest.raises(RootMissing):
        open_root(str(tmp_path / "none"), {}, CLOCK, create=False)


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    mine, other = made(tmp_path / "mine"), made(tmp_path / "other")
    store = open_root(str(tmp_path / "other"), {}, CLOCK, cluster_id=mine)
    with pytest.raises(InvalidConfig, match=other):
        open_cluster(store, CLOCK, cluster_id=mine)
    with pytest.raises(StoreUnavailable):
        open_root(str(tmp_path / "none"), {}, CLOCK, cluster_id=mine)


def test_a_root_is_made_in_no_directory_that_is_to_be_a_mount(tmp_path: Path) -> None:
    mount, table = tmp_path / "a mount", tmp_path / "fstab"
    mount.mkdir()
    escaped = str(mount).replace(" ", "\\040")
    table.write_text(f"# a comment\n/dev/sdb1 {escaped} ext4 defaults 0 2\n")
    with pytest.raises(StoreUnavailable, match="a mount is not mounted"):
        open_root(str(mount / "root"), {}, CLOCK, mounts=table)
    assert not [*mount.iterdir()]
    made(mount / "root")  # as somebody did before it was listed
    open_root(str(mount / "root"), {}, CLOCK, mounts=table)
