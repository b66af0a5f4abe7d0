"""Two gateways whose packets to one another are lost, for tests: python -m tests.kit.cut_network DIR

Runs in a network of its own, as `unshare -n` makes one: the addresses at which the gateways reach one another
are taken away, and what is sent there goes to a machine that is none. Clients ask at another address.
"""

import subprocess
import sys
from pathlib import Path

from tests.kit.several import Several, loaded, part

HOSTS = ("10.9.0.1", "10.9.0.2")
NOBODY, NOBODYS_CARD = "10.9.1.2", "02:00:00:00:00:01"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def make() -> None:
    """Make a network that sends packets even if nobody takes them."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
    for card in ("v0", "v1"):
        _ip("link", "set", card, "up")
    _ip("addr", "add", "10.9.1.1/24", "dev", "v0")
    _ip("neigh", "add", NOBODY, "lladdr", NOBODYS_CARD, "dev", "v0")
    _ip("route", "add", "default", "via", NOBODY)
    join()


def join() -> None:
    for host in HOSTS:
        _ip("addr", "add", f"{host}/32", "dev", "lo")


def cut() -> None:
    for host in HOSTS:
        _ip("addr", "del", f"{host}/32", "dev", "lo")


def main(directory: Path) -> None:
    several = Several(directory, 2, hosts=HOSTS, leader_timeout_ms=5_000)
    with loaded(several, directory) as load:
        # What was under way when the network was cut has an unknown outcome.
        part(several, load, cut, join, 50303)
        assert load.findings() == []


if __name__ == "__main__":
    make()
    main(Path(sys.argv[1]))
