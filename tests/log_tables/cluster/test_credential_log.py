"""The log of credentials: whole whoever writes or dies, closed to others, and forgetting what was removed."""

import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.security_admin import (
    add_api_key,
    note_uses,
    put_user,
    remove_user,
    revoke_api_keys,
)
from log_tables.cluster.credential import ApiKeyRecord, ScramCredential, ScramUserRecord
from log_tables.cluster.credential_log import (
    CredentialLog,
    Credentials,
    api_key_record,
    create_credentials,
    open_credentials,
    revocations,
    use_record,
    user_record,
)
from log_tables.errors import CorruptLog, NotFound
from log_tables.layout import CREDENTIALS, CREDENTIALS_DIRECTORY, commit_path
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.root.table_check import check_partition
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore, Crash, Fault, FaultyStore, crash_after, crash_before
from tests.kit.failures import before

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS


def key(name: str) -> ApiKeyRecord:
    return ApiKeyRecord(name, "User:ann", name.encode().ljust(32, b"#"), 1)


def user(name: str, stored: bytes = b"stored") -> ScramUserRecord:
    return ScramUserRecord(name, {"SCRAM-SHA-256": ScramCredential(b"salt", 4096, stored, b"server")})


def known(store: Store) -> Credentials:
    """The credentials, as a process that starts now reads them."""
    log = open_credentials(store, SystemClock(), "")
    return Credentials() if log is None else log.credentials


@pytest.fixture
def log(store: Store, clock: ManualClock) -> CredentialLog:
    return create_credentials(store, clock, "http://first")


# What it holds.


def test_a_root_has_no_log_until_there_is_a_credential(store: Store, clock: ManualClock) -> None:
    assert open_credentials(store, clock, "") is None
    assert [*store.list("")] == []
    assert create_credentials(store, clock, "").credentials == Credentials()
    assert open_credentials(store, clock, "") is not None


def test_keys_and_users_come_and_go(log: CredentialLog, store: Store) -> None:
    add_api_key(log, key("a"))
    add_api_key(log, key("b"))
    put_user(log, user("ann/x"))
    put_user(log, user("bob", b"first"))
    put_user(log, user("bob", b"second"))
    note_uses(log, {"a": 5 * HOUR_MS, "b": 6 * HOUR_MS})
    revoke_api_keys(log, ["a"])
    remove_user(log, "ann/x")
    expected = Credentials({"b": key("b")}, {"b": 6 * HOUR_MS}, {"bob": user("bob", b"second")})
    assert log.credentials == known(store) == expected
    with pytest.raises(NotFound, match="there is no key 'a'; see `lakelog key list`"):
        revoke_api_keys(log, ["b", "a"])
    with pytest.raises(NotFound, match="there is no user 'ann'; see `lakelog user list`"):
        remove_user(log, "ann")
    assert known(store) == expected
    assert check_partition(store, CREDENTIALS_DIRECTORY).problems == []


def test_a_use_is_noted_once_an_hour_and_in_one_append_and_never_of_a_revoked_key(
    log: CredentialLog, store: Store
) -> None:
    for name in "abc":
        add_api_key(log, key(name))
    revoke_api_keys(log, ["c"])
    version = log.partition.snapshot.version
    note_uses(log, {"a": DAY_MS, "b": DAY_MS, "c": DAY_MS})
    assert log.partition.snapshot.version == version + 1
    assert known(store).used_ms == {"a": DAY_MS, "b": DAY_MS}
    note_uses(log, {"a": DAY_MS + HOUR_MS - 1, "c": 2 * DAY_MS})
    assert log.partition.snapshot.version == version + 1
    note_uses(log, {"a": DAY_MS + HOUR_MS, "b": DAY_MS + 1})
    assert known(store).used_ms == {"a": DAY_MS + HOUR_MS, "b": DAY_MS}


@pytest.mark.parametrize(
    "record",
    [
        Record(b"{}", b"key/a"),
        Record(api_key_record(key("a")).value, b"key/b"),
        Record(user_record("ann", user("ann")).value, b"user/bob"),
        Record((api_key_record(key("a")).value or b"")[:-1] + b',"hosts":[]}', b"key/a"),
        Record(b"true", b"used/a"),
        Record(b"1", b"role/a"),
        Record(b"1", b"\xff"),
        Record(b"1", None),
    ],
)
def test_a_spoilt_record_stops_every_reader_and_what_was_known_stays(
    log: CredentialLog, store: Store, record: Record
) -> None:
    add_api_key(log, key("a"))
    log.partition.append([AppendRequest(input_batch([*revocations("a"), record], 0))])
    for _ in range(2):
        with pytest.raises(CorruptLog, match="offset 3 of credentials/log cannot be read") as caught:
            log.refresh()
        assert "#" not in str(caught.value)
    assert log.credentials.api_keys == {"a": key("a")}
    with pytest.raises(CorruptLog):
        create_credentials(store, SystemClock(), "")


def test_a_log_that_lost_its_beginning_is_not_begun_again(log: CredentialLog, store: Store) -> None:
    add_api_key(log, key("a"))
    store.delete(commit_path(CREDENTIALS_DIRECTORY, 0))
    for opened in (open_credentials, create_credentials):
        with pytest.raises(CorruptLog, match="lacks version 0; restore credentials/ from a backup"):
            opened(store, SystemClock(), "")


# Several writers, and those that die.


def test_writers_at_once_lose_nothing(store_root: Path) -> None:
    start = threading.Barrier(3)

    def run(number: int) -> None:
        start.wait()
        log = create_credentials(open_store(store_root), SystemClock(), f"http://{number}")
        for name in ("a", "b"):
            add_api_key(log, key(f"{name}{number}"))

    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(run, range(3))] == [None] * 3
    assert known(open_store(store_root)).api_keys.keys() == {f"{name}{n}" for name in "ab" for n in range(3)}


def test_who_revokes_at_once_with_another_decides_again(log: CredentialLog, store: Store) -> None:
    add_api_key(log, key("a"))
    taken = Fault(1, before(lambda: revoke_api_keys(log, ["a"])), {"put_new"})
    slow = create_credentials(FaultyStore(store, [taken]), SystemClock(), "http://second")
    with pytest.raises(NotFound):
        revoke_api_keys(slow, ["a"])
    assert known(store) == Credentials()


@pytest.mark.parametrize("failure", [crash_before, crash_after])
@pytest.mark.parametrize("nth", range(1, 5))
def test_a_writer_that_dies_has_done_all_or_nothing(store: Store, nth: int, failure: object) -> None:
    """The writer dies at its table, its claim, its segment, or its commit."""
    dying = FaultyStore(store, [Fault(nth, failure)])  # type: ignore[arg-type]
    with pytest.raises(Crash):
        create_credentials(dying, SystemClock(), "").change(
            lambda _: [api_key_record(key("a")), use_record("a", 1), user_record("ann", user("ann"))]
        )
    done = nth == 4 and failure is crash_after
    expected = Credentials({"a": key("a")}, {"a": 1}, {"ann": user("ann")}) if done else Credentials()
    assert known(store) == expected
    log = create_credentials(store, SystemClock(), "")
    add_api_key(log, key("b"))
    assert known(store).api_keys == {**expected.api_keys, "b": key("b")}


# Nothing is left.


@pytest.fixture
def local(tmp_path: Path, clock: ManualClock) -> Store:
    return ClockedStore(open_store(tmp_path), clock)


def data_files(store: Store) -> set[str]:
    paths = (item.path for item in store.list(f"{CREDENTIALS}/"))
    return {path for path in paths if path.endswith(".parquet") and "/_" not in path}


def test_the_hash_of_a_revoked_key_is_gone_two_hours_later(local: Store, clock: ManualClock) -> None:
    log = create_credentials(local, clock, "")
    add_api_key(log, key("gone"))
    add_api_key(log, key("stays"))
    put_user(log, user("ann", b"first"))
    with_hashes = data_files(local)
    revoke_api_keys(log, ["gone"])
    put_user(log, user("ann", b"second"))
    log.clean()
    clock.advance(HOUR_MS + 1)
    log.clean()
    assert with_hashes & data_files(local) == set()
    assert known(local) == Credentials({"stays": key("stays")}, {}, {"ann": user("ann", b"second")})
    version = log.partition.snapshot.version
    log.clean()
    assert log.partition.snapshot.version == version
    assert check_partition(local, CREDENTIALS_DIRECTORY).problems == []


def test_who_slept_for_longer_than_a_tombstone_stays_lets_no_revoked_key_in(
    local: Store, clock: ManualClock
) -> None:
    log = create_credentials(local, clock, "http://first")
    add_api_key(log, key("a"))
    add_api_key(log, key("b"))
    sleeper = create_credentials(local, clock, "http://second")
    revoke_api_keys(log, ["a"])
    log.clean()
    for _ in range(2):
        clock.advance(DAY_MS + HOUR_MS)
        note_uses(log, {"b": clock.now_ms()})
        log.clean()
    sleeper.refresh()
    assert sleeper.credentials.api_keys == {"b": key("b")}


def test_who_sleeps_in_the_middle_of_a_look_lets_no_revoked_key_in(local: Store, clock: ManualClock) -> None:
    """The reader knows the length of the log, and sleeps until the tombstone is cleaned."""
    log = create_credentials(local, clock, "http://first")
    add_api_key(log, key("a"))
    add_api_key(log, key("b"))
    asleep = False

    def slept() -> None:
        nonlocal asleep
        if asleep:
            asleep = False
            log.clean()
            for _ in range(2):
                clock.advance(DAY_MS + HOUR_MS)
                note_uses(log, {"b": clock.now_ms()})
                log.clean()

    segments = f"{CREDENTIALS_DIRECTORY}/0"
    faults = [Fault(nth, before(slept), {"get", "get_range"}, segments) for nth in range(1, 20)]
    sleeper = create_credentials(FaultyStore(local, faults), clock, "http://second")
    revoke_api_keys(log, ["a"])
    asleep = True
    sleeper.refresh()
    assert not asleep
    sleeper.refresh()
    assert sleeper.credentials.api_keys == {"b": key("b")}


def test_cleaners_at_once_and_killed_ones_lose_nothing(local: Store, clock: ManualClock) -> None:
    log = create_credentials(local, clock, "")
    for name in "abcd":
        add_api_key(log, key(name))
    for nth in range(1, 6):
        note_uses(log, {"a": nth * DAY_MS})
        dying = open_credentials(FaultyStore(local, [Fault(nth, crash_after)]), clock, "")
        assert dying is not None
        try:
            dying.clean()
        except Crash:
            pass
        assert known(local).api_keys.keys() == set("abcd")
    with ThreadPoolExecutor(2) as pool:
        again = [create_credentials(local, clock, "") for _ in range(2)]
        assert [*pool.map(CredentialLog.clean, again)] == [None, None]
    assert known(local) == Credentials({name: key(name) for name in "abcd"}, {"a": 5 * DAY_MS}, {})
    assert check_partition(local, CREDENTIALS_DIRECTORY).problems == []


# Nobody else can read it.


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_only_the_owner_can_read_it_whatever_the_umask_says(
    tmp_path: Path, no_umask: None, clock: ManualClock
) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o777)
    store = open_store(root)
    log = create_credentials(store, clock, "")
    add_api_key(log, key("a"))
    log.clean()
    log.partition.checkpoint()
    store.put("other/file", b"x")
    found = [*(root / CREDENTIALS).rglob("*"), root / CREDENTIALS]
    modes = {stat.S_IMODE(file.stat().st_mode) for file in found if file.is_file()}
    assert modes == {0o600}
    assert {stat.S_IMODE(file.stat().st_mode) for file in found if file.is_dir()} == {0o700}
    assert stat.S_IMODE((root / "other").stat().st_mode) == 0o777
    assert stat.S_IMODE((root / "other" / "file").stat().st_mode) == 0o666
