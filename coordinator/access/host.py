"""Addresses: those of clients, as ACLs compare them, and as bounds count them; those of listeners."""

from ipaddress import IPv6Address, IPv6Network, ip_address

from log_tables.cluster.acl import ANY

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
