"""Gateways as the command starts and lists them."""

from pathlib import Path

from tests.kit.cli import USAGE, Run
from tests.kit.gateway import start_gateway


def test_a_gateway_stands_where_the_command_says(run: Run, tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, "--rack", "eu-1a")
    try:
        done = run("broker", "list", "--url", gateway.url)
        assert done.exit_code == 0, done.output
        head, line = (each.split() for each in done.stdout.splitlines())
        assert dict(zip(head, line, strict=False))["rack"] == "eu-1a"
        cluster = gateway.client.get("/v3/clusters").json()["data"][0]["cluster_id"]
        (found,) = gateway.client.get(f"/v3/clusters/{cluster}/brokers").json()["data"]
        assert found["rack"] == "eu-1a"
    finally:
        gateway.stop()
    started = run("serve", "--data", f"{tmp_path}", "--rack", "a b")
    assert started.exit_code == USAGE
    assert "broker_rack" in started.output
