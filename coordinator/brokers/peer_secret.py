"""The secret that the gateways of a cluster share: it proves to each that the other is one of them.

It never goes over the wire. Headers have HMACs of it, which are good for one process alone: with the id of
the cluster, the incarnation that is meant, and the one that asks. Without TLS they can be recorded and sent
again, to the same process. Several secrets may hold at once, so that each gateway can be given another one.
"""

import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import InvalidConfig

SECRET_MIN_CHARS = 32
"""128 random bits, in hexadecimal digits."""

ADVICE = (
    "give all gateways the same one by the setting peer_secret_file, or as LAKELOG_PEER_SECRET, and restart"
)

_MAC_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Target:
    """One gateway as others name it in requests, its proof in answers, and the secret of both."""

    name: str
    proof: str
    secret: bytes = field(repr=False)


class PeerSecrets:
    """The secrets of one gateway, the newest first."""

    def __init__(self, secrets: Sequence[str], cluster_id: str) -> None:
        """Raises InvalidConfig for none, and for one that could be guessed."""
        if not secrets or any(len(secret) < SECRET_MIN_CHARS for secret in secrets):
            raise InvalidConfig(
                f"a peer secret has at least {SECRET_MIN_CHARS} characters; make one with "
                "`openssl rand -hex 32`"
            )
        self._cluster_id = cluster_id
        self._by_print = {_mac(each.encode(), "fingerprint", cluster_id): each.encode() for each in secrets}

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Public names of the secrets, from which nobody gets at them."""
        return tuple(self._by_print)

    def shares(self, fingerprints: Collection[str]) -> bool:
        """Whether one of the secrets has one of these names."""
        return any(each in fingerprints for each in self._by_print)

    def strangers(self, brokers: Mapping[int, BrokerRecord], url: str) -> list[BrokerRecord]:
        """The brokers that hold none of these secrets, without the one at `url` and those that leave."""
        others = (each for each in brokers.values() if each.url != url and not each.leaving)
        return [each for each in others if not self.shares(each.peer_keys)]

    def target(self, incarnation: str, fingerprints: Collection[str]) -> Target | None:
        """The gateway of this incarnation, by the first secret that it has too; None if there is none."""
        for fingerprint, secret in self._by_print.items():
            if fingerprint in fingerprints:
                return _target(secret, self._cluster_id, incarnation)
        return None

    def find(self, name: str, incarnation: str) -> Target | None:
        """The target of this incarnation that `name` is, by any of the secrets. In constant time."""
        found = None
        for secret in self._by_print.values():
            target = _target(secret, self._cluster_id, incarnation)
            if hmac.compare_digest(target.name.encode(), name.encode(errors="replace")):
                found = target
        return found


def seal(target: Target, incarnation: str) -> str:
    """Proof towards `target` that the sender is the gateway of `incarnation`, and has the secret."""
    return _mac(target.secret, "asker", target.name, incarnation)


@lru_cache(maxsize=1_024)
def _target(secret: bytes, cluster_id: str, incarnation: str) -> Target:
    name, proof = (_mac(secret, word, cluster_id, incarnation) for word in ("target", "proof"))
    return Target(name, proof, secret)


@lru_cache(maxsize=4_096)
def _mac(secret: bytes, *words: str) -> str:
    return hmac.digest(secret, "\0".join(words).encode(), "sha256").hex()[:_MAC_DIGITS]
