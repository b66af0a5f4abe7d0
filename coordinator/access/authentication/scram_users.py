"""SCRAM users as of one moment, among which a name that does not exist looks like one that does."""

import hmac
from collections.abc import Mapping

from coordinator.access.authentication.scram import ITERATIONS_MAX, MECHANISMS
from log_tables.cluster.credential import ScramCredential, ScramUserRecord


class ScramUsers:
    """Immutable. `key` is secret and of this process: from it come the salts of names that do not exist."""

    def __init__(self, records: Mapping[str, ScramUserRecord], key: bytes) -> None:
        self._records, self._key = records, key
        self._costs = {
            mechanism: sorted({user.mechanisms[mechanism].iterations for user in able}) or [ITERATIONS_MAX]
            for mechanism in MECHANISMS
            for able in [[user for user in records.values() if mechanism in user.mechanisms]]
        }
        preferred = {mechanism_of(user) for user in records.values() if user.mechanisms}
        self._preferred = sorted(preferred) or [next(iter(MECHANISMS))]

    def get(self, name: str) -> ScramUserRecord | None:
        return self._records.get(name)

    def for_password(self, name: str) -> tuple[str, ScramCredential]:
        """A mechanism and a credential that a password of `name` is compared with."""
        user = self._records.get(name)
        if user and user.mechanisms:
            mechanism = mechanism_of(user)
        else:
            mechanism = self._preferred[self._pick(name, len(self._preferred))]
        return mechanism, self.credential(name, mechanism)

    def credential(self, name: str, mechanism: str) -> ScramCredential:
        """The credential of `name`, or one that no password is right for, and that is the same each time."""
        user = self._records.get(name)
        if user and mechanism in user.mechanisms:
            return user.mechanisms[mechanism]
        salt, costs = self._digest(f"{mechanism} {name}"), self._costs[mechanism]
        return ScramCredential(salt, costs[self._pick(name, len(costs))], b"", b"")

    def _pick(self, name: str, choices: int) -> int:
        """One of `choices` numbers, always the same for a name."""
        return int.from_bytes(self._digest(name)) % choices

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(errors="surrogatepass"), "sha256")


def mechanism_of(user: ScramUserRecord) -> str:
    """The mechanism by which a password of `user` is checked: the first that there is."""
    return next(mechanism for mechanism in MECHANISMS if mechanism in user.mechanisms)
