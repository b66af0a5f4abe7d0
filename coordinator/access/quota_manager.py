"""Quotas of principals at one gateway, as Kafka's: bytes, requests and changes of topics a second.

A bucket holds the quota of one second. Each use is taken at once, also beyond what is there: the debt is
how long the principal has to wait. A short debt delays the next request, a long one refuses it, so a client
that sends one large request pays for it later, and nobody's memory holds what waits.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from threading import Lock

from coordinator.access.principal import Principal
from log_tables.clock import Clock
from log_tables.cluster.access_record import DEFAULT_QUOTA, Quota
from log_tables.errors import QuotaReached

DELAY_MAX_S = 1.0
"""A longer debt refuses a request instead of delaying it."""

DEBT_MAX_S = 1e9
"""No debt is longer, however small a quota is: it has to be a number that clients can be told."""

BUCKETS_MAX = 20_000
"""Buckets that are remembered; one that was not used for longest is full again."""


class QuotaKind(StrEnum):
    """A quota of a principal, by Kafka's name."""

    PRODUCER_BYTES = "producer_byte_rate"
    CONSUMER_BYTES = "consumer_byte_rate"
    REQUESTS = "request_rate"
    MUTATIONS = "controller_mutation_rate"


@dataclass(slots=True)
class _Bucket:
    rate: float
    left: float
    at_s: float

    def fill(self, rate: float, now_s: float) -> None:
        if (
            rate != self.rate
        ):  # the quota was changed: a debt is as large or as long as it was, whichever is less
            self.left, self.rate = max(self.left, self.left / self.rate * rate), rate
        self.left = min(rate, self.left + (now_s - self.at_s) * rate)
        self.at_s = now_s

    @property
    def debt_s(self) -> float:
        return min(max(0.0, -self.left / self.rate), DEBT_MAX_S)


class QuotaManager:
    """The buckets of all principals. Thread-safe."""

    def __init__(self, quotas: Callable[[], Mapping[str, Quota]], clock: Clock) -> None:
        """`quotas` returns those that hold now, by entity."""
        self._quotas, self._clock = quotas, clock
        self._buckets: OrderedDict[tuple[str, QuotaKind], _Bucket] = OrderedDict()
        self._lock = Lock()

    @property
    def exist(self) -> bool:
        """Whether there is any quota at all."""
        return bool(self._quotas())

    def rate(self, principal: Principal, kind: QuotaKind) -> float | None:
        """The quota of `principal`: its own, else the largest of its groups, else the default."""
        quotas = self._quotas()
        if not quotas:
            return None
        own = _rate(quotas, principal.name, kind)
        if own is not None:
            return own
        groups = [rate for group in principal.groups if (rate := _rate(quotas, group, kind)) is not None]
        return max(groups) if groups else _rate(quotas, DEFAULT_QUOTA, kind)

    def delay_s(self, principal: Principal, kind: QuotaKind) -> float:
        """How long the next request has to wait. Raises QuotaReached if that is too long."""
        debt_s = self.debt_s(principal, kind)
        if debt_s > DELAY_MAX_S:
            rate = self.rate(principal, kind) or 0.0
            raise QuotaReached(
                f"{principal.name[:200]} has used more than its {kind} of {rate:g} a second; repeat the "
                f"request in {ceil(debt_s)} s, or ask an administrator for a larger quota",
                retry_after_s=debt_s,
            )
        return debt_s

    def debt_s(self, principal: Principal, kind: QuotaKind) -> float:
        """How long it takes until what was used beyond the quota is made up for."""
        rate = self.rate(principal, kind)
        if rate is None:
            return 0.0
        with self._lock:
            return self._bucket(principal, kind, rate).debt_s

    def charge(self, principal: Principal, kind: QuotaKind, amount: float) -> None:
        """Take `amount`, which was used."""
        rate = self.rate(principal, kind)
        if rate is not None:
            with self._lock:
                self._bucket(principal, kind, rate).left -= amount

    def _bucket(self, principal: Principal, kind: QuotaKind, rate: float) -> _Bucket:
        key, now_s = (principal.name, kind), self._clock.monotonic()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(rate, rate, now_s)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.fill(rate, now_s)
        return bucket


def _rate(quotas: Mapping[str, Quota], entity: str, kind: QuotaKind) -> float | None:
    found = quotas.get(entity)
    return None if found is None else getattr(found, kind.value)
