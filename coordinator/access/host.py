"""Addresses: those of clients, as ACLs compare them, and as bounds count them; those of listeners; those that
only programs of this machine reach; URLs that nobody reads on the way.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from log_tables.cluster.acl import ANY
from log_tables.errors import InvalidConfig

_IPV6_NETWORK_BITS = 64
"""A customer has at least as many addresses of IPv6 as these leave."""

_PREFIX_LENGTH = re.compile(r"[0-9]{1,3}")
_MAPPED_BITS = 96
"""Of `::ffff:0:0/96`, which has the addresses of IPv4."""


def normal_host(host: str) -> str:
    """The one form of an IP address: `::1` however it is written, an IPv4 address within IPv6 as IPv4; of a
    network in CIDR notation (KIP-1276): `10.0.0.7/24` is `10.0.0.0/24`. Java gives Kafka its addresses in one
    form, too. A text that is neither stays as it is.
    """
    if host == ANY:
        return host  # most ACLs have it, and an exception takes longer than all the rest of them
    try:
        return str(_network(host) if "/" in host else _plain(ip_address(host)))
    except ValueError:
        return host


def is_host(host: str) -> bool:
    """Whether `host` is an IP address, or a network in CIDR notation."""
    try:
        if not host.isprintable():  # a zone of IPv6 may be any text
            return False
        _network(host) if "/" in host else ip_address(host)
    except ValueError:
        return False
    return True


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _network(text: str) -> IPv4Network | IPv6Network:
    """Raises ValueError. `ip_network` takes masks, too, which Kafka does not, and forgets zones: the network
    would be that of every interface.
    """
    if "%" in text or not _PREFIX_LENGTH.fullmatch(text.partition("/")[2]):
        raise ValueError
    found = ip_network(text, strict=False)
    if isinstance(found, IPv6Network) and found.prefixlen >= _MAPPED_BITS:
        mapped = found.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, found.prefixlen - _MAPPED_BITS))
    return found


def networks_with(host: str, lengths: Iterable[int]) -> list[str]:
    """The networks that `host` is in whose prefixes have these `lengths` in bits, in their one form."""
    try:
        address = _plain(ip_address(host))
    except ValueError:
        return []
    kind = IPv4Network if isinstance(address, IPv4Address) else IPv6Network
    bits = int(address)
    found = []
    for length in lengths:
        left = address.max_prefixlen - length
        if left >= 0:
            found.append(str(kind((bits >> left << left, length))))
    return found


def network_of(host: str) -> str:
    """The addresses that one client can have: an IPv4 address itself, or the network of one of IPv6."""
    normal = normal_host(host)
    try:
        return str(IPv6Network((normal.partition("%")[0], _IPV6_NETWORK_BITS), strict=False))
    except ValueError:
        return normal


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of `HOST:PORT`; the host without its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


@lru_cache(maxsize=256)
def is_loopback(name: str) -> bool:
    """Whether `name` is an address that only programs of this machine reach."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def check_https(setting: str, url: str, what: str) -> None:
    """Raise InvalidConfig unless `url` is https, or leads to this machine: `what` would be open to all."""
    address = urlsplit(url)
    host = address.hostname or ""
    if address.scheme != "https" and not (host == "localhost" or is_loopback(host)):
        raise InvalidConfig(f"{setting} = {url!r} is not https: {what}; name a URL that begins with https://")
