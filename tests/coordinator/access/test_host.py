"""Addresses of clients: in one form, and as many as one client can have together."""

import pytest

from coordinator.access.host import is_host, network_of, networks_with, normal_host


@pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1", "::FFFF:a00:1"])
def test_an_address_has_one_form(host: str) -> None:
    assert normal_host(host) == "10.0.0.1"
    assert network_of(host) == "10.0.0.1"


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("10.0.0.7/24", "10.0.0.0/24"),
        ("10.0.0.0/08", "10.0.0.0/8"),
        ("::ffff:10.0.0.9/120", "10.0.0.0/24"),
        ("2001:DB8::1/32", "2001:db8::/32"),
        ("10.0.0.0/33", "10.0.0.0/33"),
        ("10.0.0.0/255.0.0.0", "10.0.0.0/255.0.0.0"),
    ],
)
def test_a_network_has_one_form(written: str, normal: str) -> None:
    assert normal_host(written) == normal


def test_a_network_has_no_zone() -> None:
    """It would be a network of every interface."""
    assert is_host("fe80::1%eth0")
    assert not is_host("fe80::1%eth0/64")
    assert normal_host("fe80::1%eth0/64") == "fe80::1%eth0/64"


def test_the_networks_of_an_address_are_those_of_the_lengths() -> None:
    assert networks_with("10.1.2.3", [0, 8, 32, 33]) == ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32"]
    assert networks_with("::ffff:10.1.2.3", [8]) == ["10.0.0.0/8"]
    assert networks_with("fe80::1%eth0", [10, 128]) == ["fe80::/10", "fe80::1/128"]
    assert networks_with("nowhere", [8]) == []


@pytest.mark.parametrize("host", ["2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", "2001:DB8:0::1%eth0"])
def test_a_network_of_ipv6_counts_as_one_address(host: str) -> None:
    assert network_of(host) == "2001:db8::/64"
    assert network_of("2001:db8:0:1::1") != network_of(host)
