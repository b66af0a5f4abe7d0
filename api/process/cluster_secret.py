"""The secret that a gateway shares with the others of its cluster: from the settings, or from a local root.

In a bucket no file can be kept from those who read it, so there the settings have to name it.
"""

import hmac
from collections.abc import Sequence
from pathlib import Path

from pydantic import SecretStr

from coordinator.brokers.peer_secret import ADVICE, SECRET_MIN_CHARS, PeerSecrets
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import AlreadyExists, InvalidConfig, ObjectMissing
from log_tables.layout import CREDENTIALS, PEER_SECRET
from log_tables.root.listed_brokers import find_living
from log_tables.store.file import unusable
from log_tables.store.local import LocalStore
from log_tables.store.store import Store

_SECRET_DIGITS = 64
_OTHERS = 0o077
"""The permissions of everybody but a file's owner."""


def peer_secrets(settings: Settings, store: Store, clock: Clock) -> tuple[str, ...]:
    """The secrets, the newest first. Raises InvalidConfig, StoreUnavailable."""
    if settings.peer_secret is not None:
        return tuple(each.strip() for each in settings.peer_secret.get_secret_value().split(","))
    if settings.peer_secret_file:
        return _of_file(Path(settings.peer_secret_file))
    if isinstance(store, LocalStore):
        return (_of_root(store, clock),)
    return (clock.random_hex(_SECRET_DIGITS),)


def salt_key(secrets: Sequence[str], cluster_id: str) -> bytes:
    """The key of the salts of names that do not exist (`Authenticator`): one for all who know the secrets."""
    return hmac.digest(secrets[0].encode(), f"lakelog salts {cluster_id}".encode(), "sha256")


def with_peer_secret(settings: Settings, store: Store, clock: Clock) -> Settings:
    """`settings` with the secret, for a process of several that share them."""
    secrets = ",".join(peer_secrets(settings, store, clock))
    return settings.model_copy(update={"peer_secret": SecretStr(secrets), "peer_secret_file": ""})


def check_peers(cluster: Cluster, secrets: PeerSecrets, url: str, wait_s: float) -> None:
    """Raise InvalidConfig if a gateway lives with which this one, at `url`, shares no secret.

    A listed gateway has `wait_s` seconds to show that it lives.
    """
    strangers = [each.id for each in secrets.strangers(cluster.metadata_log.brokers, url)]
    living = find_living(cluster, wait_s, among=strangers) if strangers else None
    if living is not None:
        raise InvalidConfig(
            f"the gateway at {living.url} serves this root too, and has another peer secret; {ADVICE}"
        )


def _of_file(path: Path) -> tuple[str, ...]:
    try:
        if path.stat().st_mode & _OTHERS:
            raise InvalidConfig(f"peer_secret_file {path}: others may read it; run `chmod 600` on it")
        return tuple(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
    except OSError as error:
        said = f"peer_secret_file {path} cannot be read"
        raise unusable(said, error, "name another", InvalidConfig) from None
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"peer_secret_file {path} is not UTF-8: {error}; name another") from None


def _of_root(store: LocalStore, clock: Clock) -> str:
    """The secret in a local root, which the first gateway makes."""
    while True:
        try:
            found = store.get(PEER_SECRET).decode(errors="replace").strip()
            if len(found) < SECRET_MIN_CHARS:
                raise InvalidConfig(
                    f"{PEER_SECRET} holds no secret; stop all gateways and remove it: the next one makes one"
                )
            if not store.is_private(CREDENTIALS):
                raise InvalidConfig(
                    f"others may look into {CREDENTIALS}/; run `chmod -R go= {CREDENTIALS}` in the root, or "
                    "name a secret elsewhere with the setting peer_secret_file"
                )
            return found
        except ObjectMissing:
            try:
                store.put_if_absent(PEER_SECRET, clock.random_hex(_SECRET_DIGITS).encode())
            except AlreadyExists:
                continue  # another gateway was first
