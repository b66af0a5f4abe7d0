"""A network between gateways that loses every packet: TCP alone would notice after a quarter of an hour."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.support import ROOT

OWN_NETWORK = ["unshare", "--map-root-user", "--net"]


def can_have_its_own_network() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    probe = [*OWN_NETWORK, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_have_its_own_network(), reason="this machine allows no network of its own")
def test_gateways_whose_packets_are_lost_leave_each_its_partitions(tmp_path: Path) -> None:
    command = [*OWN_NETWORK, sys.executable, "-m", "tests.kit.cut_network", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
