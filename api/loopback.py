"""Addresses that only programs of this machine reach, and URLs that nobody reads on the way."""

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from log_tables.errors import InvalidConfig


@lru_cache(maxsize=256)
def is_loopback(name: str) -> bool:
    """Whether `name` is an address that only programs of this machine reach."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_https(setting: str, url: str, what: str) -> None:
    """Raise InvalidConfig unless `url` is https, or leads to this machine: `what` would be open to all."""
    address = urlsplit(url)
    host = address.hostname or ""
    if address.scheme != "https" and not (host == "localhost" or is_loopback(host)):
        raise InvalidConfig(f"{setting} = {url!r} is not https: {what}; name a URL that begins with https://")
