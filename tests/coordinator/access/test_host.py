"""Addresses of clients: in one form, and as many as one client can have together."""

import pytest

from coordinator.access.host import network_of, normal_host


@pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1", "::FFFF:a00:1"])
def test_an_address_has_one_form(host: str) -> None:
    assert normal_host(host) == "10.0.0.1"
    assert network_of(host) == "10.0.0.1"


@pytest.mark.parametrize("host", ["2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", "2001:DB8:0::1%eth0"])
def test_a_network_of_ipv6_counts_as_one_address(host: str) -> None:
    assert network_of(host) == "2001:db8::/64"
    assert network_of("2001:db8:0:1::1") != network_of(host)
