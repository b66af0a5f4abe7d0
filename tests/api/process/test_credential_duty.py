"""A gateway follows the credentials: it learns of new ones, forgets revoked ones, and notes when keys are
used.
"""

import threading

import pytest

from api.process.credential_duty import CredentialDuty, KeyReportDuty, authenticator_of
from coordinator.access.authentication.api_key import new_api_key
from coordinator.access.authentication.authenticator import Authenticator
from coordinator.access.principal import Principal
from ingest.settings import Settings
from log_tables.clock import ManualClock
from log_tables.cluster.admin.security_admin import add_api_key, revoke_api_keys
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential import AuthenticationMethod
from log_tables.cluster.credential_log import CredentialLog, create_credentials
from log_tables.errors import CorruptLog, StoreUnavailable
from log_tables.layout import CREDENTIALS
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore, Fault, FaultyStore, HoldingStore, unavailable
from tests.kit.support import WAIT_S, wait_until

HOUR_MS = 60 * 60 * 1000


class World:
    """A root, and what a gateway on it does, by hand."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.clock, self.store = clock, store
        self.cluster = Cluster.open(store, clock, "http://gateway")
        made = authenticator_of(Settings(authentication_methods=(AuthenticationMethod.API_KEY,)), clock)
        assert made is not None
        self.authenticator: Authenticator = made
        self.duty = CredentialDuty(self.cluster, made)
        self.uses = KeyReportDuty(self.cluster, made)

    def log(self) -> CredentialLog:
        """The log of the credentials, as an administrator's command opens it."""
        return create_credentials(self.store, self.clock, "")

    def new_key(self) -> tuple[str, bytes]:
        """The id of a new key, and the header of a request with it."""
        text, key = new_api_key("User:ann", self.clock)
        add_api_key(self.log(), key)
        return key.id, f"Bearer {text}".encode()

    def knows(self, header: bytes) -> bool:
        return self.authenticator.known(header, None) == Principal("User:ann")


@pytest.fixture
def world(clock: ManualClock) -> World:
    return World(ClockedStore(open_store("memory://"), clock), clock)


def test_keys_are_known_once_they_are_made_and_no_longer_once_they_are_revoked(world: World) -> None:
    world.duty.run()
    key_id, header = world.new_key()
    assert not world.knows(header)
    world.duty.run()
    assert world.knows(header)
    revoke_api_keys(world.log(), [key_id])
    world.duty.run()
    assert not world.knows(header)


def test_a_look_that_came_late_does_not_last(world: World) -> None:
    """A request that changes users tells what it has read, maybe after a newer revocation was followed."""
    key_id, header = world.new_key()
    late = world.log().credentials
    revoke_api_keys(world.log(), [key_id])
    world.duty.run()
    world.authenticator.update(late.api_keys, late.users)
    world.duty.run()
    assert not world.knows(header)


def test_the_last_use_of_all_keys_is_noted_in_one_append_an_hour(world: World) -> None:
    keys = [world.new_key() for _ in range(3)]
    world.duty.run()
    for _, header in keys[:2]:
        assert world.knows(header)
    before, first_ms = world.log().partition.high_watermark, world.clock.now_ms()
    for _ in range(3):
        world.uses.run()
        assert world.knows(keys[0][1])
    assert world.log().credentials.used_ms == {key_id: first_ms for key_id, _ in keys[:2]}
    assert world.log().partition.high_watermark == before + 2
    world.clock.advance(HOUR_MS)
    assert world.knows(keys[0][1])
    world.uses.run()
    assert world.log().credentials.used_ms == {keys[0][0]: first_ms + HOUR_MS, keys[1][0]: first_ms}


def test_a_use_is_noted_later_when_the_store_was_away(world: World, clock: ManualClock) -> None:
    key_id, header = world.new_key()
    away = World(FaultyStore(world.store, [Fault(1, unavailable, {"put_new"}, CREDENTIALS)]), clock)
    away.duty.run()
    assert away.knows(header)
    used_ms = clock.now_ms()
    with pytest.raises(StoreUnavailable):
        away.uses.run()
    clock.advance(1)
    away.uses.run()
    assert away.log().credentials.used_ms == {key_id: used_ms}


def test_a_key_that_is_revoked_while_a_use_is_noted_is_refused(world: World, clock: ManualClock) -> None:
    key_id, header = world.new_key()
    store = HoldingStore(world.store, CREDENTIALS)
    slow = World(store, clock)
    slow.duty.run()
    assert slow.knows(header)
    store.hold()
    noting = threading.Thread(target=slow.uses.run)
    noting.start()
    try:
        wait_until(lambda: store.held > 0, "the use is about to be noted")
        revoke_api_keys(world.log(), [key_id])
        slow.duty.run()
        assert not slow.knows(header)
    finally:
        store.let_go()
        noting.join(WAIT_S)
    assert key_id not in slow.log().credentials.used_ms


def test_the_last_known_keys_stay_when_the_log_cannot_be_read(world: World) -> None:
    _, header = world.new_key()
    world.duty.run()
    log = world.log()
    log.partition.claim("")
    log.partition.append([AppendRequest(input_batch([Record(b"{}", b"role/a")], 0))])
    for _ in range(2):
        with pytest.raises(CorruptLog, match="offset 1 of credentials/log"):
            world.duty.run()
        assert world.knows(header)


def test_the_file_with_the_hash_of_a_revoked_key_goes(world: World) -> None:
    world.duty.clean()  # there is no log yet
    key_id, _ = world.new_key()
    world.new_key()
    world.duty.run()
    held = {item.path for item in world.store.list(f"{CREDENTIALS}/") if item.path.endswith(".parquet")}
    revoke_api_keys(world.log(), [key_id])
    world.duty.run()
    world.duty.clean()
    world.clock.advance(HOUR_MS + 1)
    world.duty.clean()
    assert held & {item.path for item in world.store.list(f"{CREDENTIALS}/")} == set()
    world.duty.run()
    assert world.log().credentials.api_keys.keys().isdisjoint({key_id})
