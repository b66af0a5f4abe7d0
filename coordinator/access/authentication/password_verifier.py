"""Checking passwords, which can be guessed: not too many at once, and not too often after wrong ones."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.access.authentication.scram import ScramUsers, is_password
from coordinator.access.host import network_of
from coordinator.access.principal import USER_MAX_CHARS
from log_tables.clock import Clock
from log_tables.cluster.credential import ScramUserRecord
from log_tables.errors import QuotaReached
from log_tables.limits import PASSWORD_MAX_CHARS

NAME_BURST, NAME_PERIOD_S = 10, 10.0
"""Wrong passwords for one name from one address: 10 at once, then 8,640 a day."""

ADDRESS_BURST, ADDRESS_PERIOD_S = 100, 1.0
"""Wrong passwords from one address for all names together. A proxy in front is one address for its
clients."""

AT_ONCE = 1
"""Passwords that are checked at once: guesses from everywhere cost a process one core, and no second one."""


FAILING_NAMES_MAX = 10_000
"""Buckets that are kept; the one that has not been touched for longest goes first, and is mostly full
again."""


class FailureRate:
    """How often something may fail: a token bucket for each name that fails.

    `burst` failures of a name at once, and one more each `period_s`. For many threads.
    """

    def __init__(self, burst: int, period_s: float, clock: Clock, names_max: int = FAILING_NAMES_MAX) -> None:
        self._burst, self._period_s, self._clock, self._names_max = burst, period_s, clock, names_max
        self._buckets: dict[str, tuple[float, float]] = {}  # by name: tokens, and when they were counted
        self._lock = threading.Lock()

    def take(self, name: str) -> bool:
        """Use a token of `name` before an attempt that may fail; False when there is none."""
        with self._lock:
            tokens = self._filled(name)
            if tokens < 1:
                return False
            self._keep(name, tokens - 1)
            return True

    def give_back(self, name: str) -> None:
        """The attempt did not fail."""
        with self._lock:
            self._keep(name, min(self._burst, self._filled(name) + 1))

    def _filled(self, name: str) -> float:
        now = self._clock.monotonic()
        tokens, counted = self._buckets.get(name, (self._burst, now))
        return min(self._burst, tokens + (now - counted) / self._period_s)

    def _keep(self, name: str, tokens: float) -> None:
        self._buckets.pop(name, None)
        if tokens >= self._burst:
            return  # as a name that never failed
        self._buckets[name] = (tokens, self._clock.monotonic())
        if len(self._buckets) > self._names_max:
            del self._buckets[next(iter(self._buckets))]


class PasswordOutcome:
    """An attempt to know a password, and whether it was `right`."""

    right = False


class PasswordVerifier:
    """Checks passwords of SCRAM users. For many threads; a check takes the time of the KDF."""

    def __init__(self, clock: Clock, at_once: int = AT_ONCE) -> None:
        self._of_name = FailureRate(NAME_BURST, NAME_PERIOD_S, clock)
        self._of_address = FailureRate(ADDRESS_BURST, ADDRESS_PERIOD_S, clock)
        self._turns = threading.Semaphore(at_once)

    def verified(self, users: ScramUsers, name: str, password: str, address: str) -> ScramUserRecord | None:
        """The user `name`, if this is the password.

        Raises QuotaReached after too many wrong ones.
        """
        if len(name) > USER_MAX_CHARS or len(password) > PASSWORD_MAX_CHARS:
            return None  # nobody has such a one: to say so at once tells nothing
        mechanism, credential = users.for_password(name)
        with self.guess(name, address) as guess, self._turns:
            guess.right = is_password(mechanism, credential, password)
        return users.get(name) if guess.right else None

    @contextmanager
    def guess(self, name: str, address: str) -> Iterator[PasswordOutcome]:
        """An attempt that counts if it comes to its end and is not right. Raises QuotaReached.

        It counts before it begins, so that many at once are as many one by one.
        """
        network = network_of(address)
        wanted = [(self._of_name, f"{network} {name}"), (self._of_address, network)]
        taken = [(rate, key) for rate, key in wanted if rate.take(key)]
        guess, is_over = PasswordOutcome(), False
        try:
            if len(taken) < len(wanted):
                raise QuotaReached(
                    f"there were too many wrong passwords; wait {NAME_PERIOD_S:g} seconds, and check the "
                    "password",
                    retry_after_s=NAME_PERIOD_S,
                )
            yield guess
            is_over = True
        finally:
            if guess.right or not is_over:
                for rate, key in taken:
                    rate.give_back(key)
