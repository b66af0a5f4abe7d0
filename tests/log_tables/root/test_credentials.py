"""A root with credentials: checked like the rest of it, copied only where that is asked for."""

import stat
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.security_admin import add_api_key, add_super_user, enable_security
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential import ApiKeyRecord
from log_tables.cluster.credential_log import Credentials, create_credentials, open_credentials
from log_tables.errors import CorruptLog
from log_tables.layout import CREDENTIALS, CREDENTIALS_DIRECTORY, commit_path
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.root.adopt import adopt
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.root.inspection import check_location
from log_tables.store.store import Store, open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_after

KEY = ApiKeyRecord("a", "User:ann", b"#" * 32, 1)


@pytest.fixture
def secured(cluster: Cluster) -> Cluster:
    """The root of conftest.py, with a key, and secured."""
    add_api_key(create_credentials(cluster.store, cluster.clock, ""), KEY)
    add_super_user(cluster.metadata_log, "User:ann")
    enable_security(cluster.metadata_log)
    return cluster


def keys(store: Store, clock: ManualClock) -> Credentials | None:
    log = open_credentials(store, clock, "")
    return None if log is None else log.credentials


def secret_files(store: Store) -> list[str]:
    return [item.path for item in store.list(f"{CREDENTIALS}/")]


def test_a_copy_has_no_credentials_and_is_secured_all_the_same(
    secured: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    target = open_store(tmp_path / "copy")
    copy_root(secured.store, target, clock)
    assert secret_files(target) == []
    assert Cluster.open(target, clock, create=False).metadata_log.access == secured.metadata_log.access
    assert check(target).problems == []
    assert create_credentials(target, clock, "").credentials == Credentials()


def test_a_copy_with_credentials_lets_the_same_keys_in(
    secured: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    target = open_store(tmp_path / "copy")
    copy_root(secured.store, target, clock, with_credentials=True)
    assert keys(target, clock) == Credentials({"a": KEY})
    assert check(target).problems == []
    assert stat.S_IMODE((tmp_path / "copy" / CREDENTIALS).stat().st_mode) == 0o700
    add_api_key(create_credentials(target, clock, ""), ApiKeyRecord("b", "User:bob", b"#" * 32, 1))
    assert keys(secured.store, clock) == Credentials({"a": KEY})


def test_a_root_without_credentials_is_copied_with_them(cluster: Cluster, tmp_path: Path) -> None:
    target = open_store(tmp_path / "copy")
    copy_root(cluster.store, target, cluster.clock, with_credentials=True)
    assert secret_files(target) == []


@pytest.mark.parametrize("with_credentials", [True, False])
def test_a_copy_that_was_interrupted_goes_on_with_or_without_them(
    secured: Cluster, tmp_path: Path, clock: ManualClock, with_credentials: bool
) -> None:
    """The copy dies after the log of the credentials, and before that of the metadata."""
    target = open_store(tmp_path / "copy")
    died = Fault(1, crash_after, {"put_if_absent"}, CREDENTIALS)
    with pytest.raises(Crash):
        copy_root(secured.store, FaultyStore(target, [died]), clock, with_credentials=True)
    assert secret_files(target)
    copy_root(secured.store, target, clock, with_credentials=with_credentials)
    assert keys(target, clock) == (Credentials({"a": KEY}) if with_credentials else None)
    assert check(target).problems == []


def test_fsck_checks_them(secured: Cluster, clock: ManualClock) -> None:
    assert check(secured.store).problems == []
    assert CREDENTIALS_DIRECTORY in [found.directory for found in check(secured.store).partitions]
    log = create_credentials(secured.store, clock, "")
    log.partition.claim("")
    log.partition.append([AppendRequest(input_batch([Record(b"secret", b"key/b")], 0))])
    (problem,) = check(secured.store).problems
    assert problem.startswith(
        "the log of credentials cannot be read: the record at offset 1 of credentials/log"
    )
    assert "secret" not in problem


def test_a_root_that_lacks_a_part_of_them_is_not_whole(
    secured: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    """The root was copied file by file, and now a gateway starts there."""
    (tmp_path / "here").rename(tmp_path / "old")
    (tmp_path / "here").mkdir()
    copy_root(open_store(tmp_path / "old"), open_store(tmp_path / "here"), clock, with_credentials=True)
    moved = open_store(tmp_path / "here")
    moved.delete(commit_path(CREDENTIALS_DIRECTORY, 0))
    moved.put("home/anchor", b"")  # as a copy has another one
    cluster = Cluster.open(moved, clock, create=False)
    with pytest.raises(CorruptLog, match="credentials/log: there is no table, or its log lacks version 0"):
        check_location(cluster, 0.0)
    with pytest.raises(CorruptLog, match="this root is not whole"):
        adopt(moved, clock, 0.0)
    assert any("credentials" in problem for problem in check(moved).problems)


def test_an_adopted_root_keeps_them(secured: Cluster, clock: ManualClock) -> None:
    adopt(secured.store, clock, 0.0)
    assert keys(secured.store, clock) == Credentials({"a": KEY})
    assert Cluster.open(secured.store, clock, create=False).metadata_log.access.secured
