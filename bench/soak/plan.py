"""When what dies in a soak, and how much comes."""

from dataclasses import dataclass
from typing import NamedTuple

MINUTE_S = 60.0
STORE_EVERY_MINUTES = 10
GATEWAYS = 2
TABLE = "table"
"""The Delta table of the Spark stream, in the directory of its job."""


class Strike(NamedTuple):
    """A strike at a second of the run, against a gateway by its number, or, with None, against the store."""

    at_s: float
    gateway: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a soak lasts, and what comes meanwhile."""

    minutes: int = 60
    records_per_s: float = 1_000
    """Three quarters by HTTP clients, the others by a Kafka client."""
    http_clients: int = 16
    request_records: int = 20
    store_away_s: float = 5.0

    def __post_init__(self) -> None:
        if min(self.minutes, self.records_per_s, self.http_clients, self.request_records) <= 0:
            raise ValueError(f"each of minutes, records and clients has to be more than 0: {self}")
        if not 0 <= self.store_away_s <= MINUTE_S / 3:
            raise ValueError(f"the store may be away for up to {MINUTE_S / 3:g} s, not {self.store_away_s:g}")

    @property
    def request_every_s(self) -> float:
        """Seconds from one request of an HTTP client to its next."""
        return self.http_clients * self.request_records / (0.75 * self.records_per_s)

    @property
    def kafka_records_per_s(self) -> float:
        return self.records_per_s / 4

    def strikes(self) -> list[Strike]:
        """In the middle of each minute a gateway is killed, one after the other. The store is stopped after
        the first minute and every ten minutes from there (in a run of one minute after 45 s).
        """
        kills = [Strike((minute + 0.5) * MINUTE_S, minute % GATEWAYS) for minute in range(self.minutes)]
        stops = [Strike(minute * MINUTE_S, None) for minute in range(1, self.minutes, STORE_EVERY_MINUTES)]
        stops = stops or [Strike(0.75 * MINUTE_S, None)]
        return sorted([*kills, *stops], key=lambda strike: strike.at_s)
