"""The log of credentials: API keys and SCRAM users, as records by key under a prefix of their own.

Nothing in it lets anybody in: keys are hashes, users are verifiers. But a verifier can be guessed at leisure,
so the prefix is for gateways and administrators alone. On a disk only the owner of the root can open it. It
is made when the first credential is.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from log_tables.clock import Clock
from log_tables.cluster.credential import ApiKeyRecord, ScramUserRecord
from log_tables.cluster.keyed_log import KeyedLog
from log_tables.errors import AlreadyExists, CorruptLog, ObjectMissing
from log_tables.layout import CREDENTIALS, CREDENTIALS_DIRECTORY
from log_tables.partition.partition import Partition
from log_tables.record import Record
from log_tables.segments.rewrite import compact_by_key
from log_tables.store.store import Store
from log_tables.table.table import create_table
from log_tables.table.vacuum import vacuum

Credential = ApiKeyRecord | ScramUserRecord | int
"""A key, a user, or when a key was last used (milliseconds since 1970)."""

_API_KEY, _USED, _USER = "key/", "used/", "user/"

_ADVICE = (
    f"restore {CREDENTIALS}/ from a backup; or stop all gateways, remove it, run `lakelog security init`, "
    "and make all keys and users again"
)


class Credentials(msgspec.Struct, frozen=True):
    """All of them at one moment: keys by id, the last use of each in milliseconds since 1970, users by
    name.
    """

    api_keys: Mapping[str, ApiKeyRecord] = {}
    used_ms: Mapping[str, int] = {}
    users: Mapping[str, ScramUserRecord] = {}


class CredentialLog(KeyedLog):
    """The log as last refreshed. Thread-safe; blocking."""

    def __init__(self, partition: Partition, url: str) -> None:
        super().__init__(partition, url)
        self._begin()
        self._credentials = Credentials()

    @property
    def credentials(self) -> Credentials:
        """All credentials; another object once they have changed."""
        return self._credentials

    def change(self, decide: Callable[[Credentials], Sequence[Record]]) -> None:
        """Append the records that `decide` makes of the newest credentials, all at once; repeated when
        another append comes between.
        """
        self._change("a credential", lambda: decide(self.credentials))

    def clean(self) -> None:
        """Drop what was removed or replaced, so that no hash stays for ever. Any process may do it.

        The file that had it goes at the first cleaning that is more than an hour later.
        """
        self.refresh(wait=True)
        self.make_durable()
        log, table = self.partition, self.partition.table
        if log.snapshot.cleaned < log.high_watermark:
            compact_by_key(table, log.config.compression)
        if table.checkpoint_due():
            log.checkpoint()
        table.delete_expired_log()
        vacuum(table)

    def _begin(self) -> None:
        self._known: dict[str, Credential] = {}

    def _publish(self) -> None:
        found = [(*key.partition("/"), value) for key, value in self._known.items()]
        self._credentials = Credentials(
            {name: value for _, _, name, value in found if isinstance(value, ApiKeyRecord)},
            {name: value for _, _, name, value in found if isinstance(value, int)},
            {name: value for _, _, name, value in found if isinstance(value, ScramUserRecord)},
        )

    def _read(self, record: Record) -> None:
        key, value = decode(record)
        if value is None:
            self._known.pop(key, None)
        else:
            self._known[key] = value


def decode(record: Record) -> tuple[str, Credential | None]:
    """The key and the value of a record, which is None where it removes one. Raises CorruptLog."""
    try:
        key = (record.key or b"").decode()
        return key, _decoded(key, record.value)
    except ValueError:  # those of msgspec are, too; no value is shown
        raise CorruptLog(
            f"the record at offset {record.offset} of {CREDENTIALS_DIRECTORY} cannot be read; {_ADVICE}"
        ) from None


def _decoded(key: str, value: bytes | None) -> Credential | None:
    """Raises ValueError, also for a record under the key of another one."""
    kind: type[Credential]
    if key.startswith(_API_KEY):
        kind = ApiKeyRecord
    elif key.startswith(_USER):
        kind = ScramUserRecord
    elif key.startswith(_USED):
        kind = int
    else:
        raise ValueError
    found = None if value is None else msgspec.json.decode(value, type=kind)
    if isinstance(found, ApiKeyRecord | ScramUserRecord) and _record(found).key != key.encode():
        raise ValueError
    return found


def open_credentials(store: Store, clock: Clock, url: str) -> CredentialLog | None:
    """The log of credentials of `store`'s root; None where there is none yet.

    Raises StoreUnavailable, CorruptLog.
    """
    if not any(True for _ in store.list(f"{CREDENTIALS_DIRECTORY}/")):
        return None
    try:
        log = CredentialLog(Partition(store, CREDENTIALS_DIRECTORY, clock), url)
    except ObjectMissing:
        raise CorruptLog(f"the log of {CREDENTIALS_DIRECTORY} lacks version 0; {_ADVICE}") from None
    log.refresh()
    return log


def create_credentials(store: Store, clock: Clock, url: str) -> CredentialLog:
    """The log of credentials of `store`'s root, which is made where there is none yet.

    Raises StoreUnavailable, CorruptLog.
    """
    found = open_credentials(store, clock, url)
    if found is not None:
        return found
    with suppress(AlreadyExists):  # another process was first, with the same table
        create_table(store, CREDENTIALS_DIRECTORY, clock)
    log = CredentialLog(Partition(store, CREDENTIALS_DIRECTORY, clock), url)
    log.refresh()
    return log


def api_key_record(key: ApiKeyRecord) -> Record:
    """The record that adds `key`."""
    return _record(key)


def revocations(key_id: str) -> list[Record]:
    """The records that remove a key, and what is known of its use."""
    return [Record(None, (_API_KEY + key_id).encode()), Record(None, (_USED + key_id).encode())]


def use_record(key_id: str, used_ms: int) -> Record:
    """The record of the last use of a key."""
    return Record(msgspec.json.encode(used_ms), (_USED + key_id).encode())


def user_record(name: str, user: ScramUserRecord | None) -> Record:
    """The record of a SCRAM user; None removes it."""
    return Record(None, (_USER + name).encode()) if user is None else _record(user)


def _record(value: ApiKeyRecord | ScramUserRecord) -> Record:
    key = _API_KEY + value.id if isinstance(value, ApiKeyRecord) else _USER + value.name
    return Record(msgspec.json.encode(value), key.encode())
