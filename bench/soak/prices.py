"""Prices of requests to an object store, from a table that names its source."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

VERBS = ("PUT", "COPY", "POST", "LIST", "GET", "HEAD", "DELETE")
PRICES = Path(__file__).with_name("prices.json")


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for 1,000 requests of each verb, and where and when these prices were noted."""

    source: str
    year: int
    usd_per_1000: dict[str, float]

    def usd(self, requests: Mapping[str, int]) -> float:
        """The price of so many requests of each verb, in US dollars."""
        return sum(self.usd_per_1000[verb] * count / 1_000 for verb, count in requests.items())


def read_prices(path: Path) -> Prices:
    """The table in a JSON file. Raises ValueError when it is none, or a verb has no price."""
    try:
        prices = msgspec.json.decode(path.read_bytes(), type=Prices)
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{path} is no table of prices: {error}; take {PRICES} as a pattern") from None
    if set(prices.usd_per_1000) != set(VERBS):
        raise ValueError(f"{path} has to price {', '.join(VERBS)}, and no other verb")
    if not all(price >= 0 for price in prices.usd_per_1000.values()):
        raise ValueError(f"{path} has a price below zero")
    return prices
