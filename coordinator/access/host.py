"""Addresses: those of clients, as ACLs compare them, and as bounds count them; those of listeners; those that
only programs of this machine reach; URLs that nobody reads on the way.
"""

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from log_tables.cluster.acl import ANY
from log_tables.errors import InvalidConfig

_IPV6_NETWORK_BITS = 64
"""A customer has at least as many addresses of IPv6 as these leave."""


def normal_host(host: str) -> str:
    """The one form of an IP address: `::1` however it is written, an IPv4 address within IPv6 as IPv4. Java
    gives Kafka its addresses in one form, too. A text that is no address stays as it is.
    """
    if host == ANY:
        return host  # most ACLs have it, and an exception takes longer than all the rest of them
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


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
