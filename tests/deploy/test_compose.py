"""The compose file runs: its services as processes, in order, with the commands of docs/deploy.md; and what
Prometheus has of them is all that the dashboard and the alerts ask for.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.house.test_docs import code_blocks, section
from tests.kit.deployed import DEPLOY, Composed, metric_names
from tests.kit.support import ROOT, S3_SERVER, wait_until

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="not Linux: the services need loopback addresses of their own",
)

DASHBOARD = json.loads((DEPLOY / "grafana" / "lakelog.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]

STEPS = section((ROOT / "docs" / "deploy.md").read_text(), "Compose")
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()

QUIET = {
    "Requests that failed, by code",
    "Failures in the background",
    "Errors of Kafka's clients",
    "Requests of Kafka's clients, by API",
    "Partitions changed, and failed",
    "Files removed",
    "Bytes read",
    "Audit: events, and those that are in no record",
    "Budget of commits in use",
    "Mirrors: lag in records",
    "Mirrors: lag in seconds",
    "Mirrors: stopped topics, living processes",
    "Room on the root's disk",
}
"""Panels that may have nothing to show in a quiet cluster in a bucket, a minute old, without a mirror."""


def expressions(panel: dict[str, Any]) -> list[str]:
    """The PromQL queries of a panel, with Grafana's variables filled in."""
    texts = [target["expr"] for target in panel["targets"]]
    return [text.replace("$__rate_interval", "30s").replace("$instance", ".*") for text in texts]


class Cluster:
    """The services, and clients of a gateway and of Prometheus."""

    def __init__(self, services: Composed, key: str) -> None:
        self.services = services
        self.headers = {"Authorization": f"Bearer {key}"}

    def url(self, name: str, port: int) -> str:
        return f"http://{self.services.hosts[name]}:{port}"

    def gateway(self, name: str) -> httpx.Client:
        return httpx.Client(base_url=self.url(name, 8082), headers=self.headers, timeout=60)

    def prometheus(self, path: str, **query: str) -> Any:
        answer = httpx.get(f"{self.url('prometheus', 9090)}/api/v1/{path}", params=query)
        assert answer.status_code == 200, f"{query}: {answer.text}"
        return answer.json()["data"]


def variables(directory: Path) -> dict[str, str]:
    """Run the first step of the page, and return the variables that it writes into `.env`."""
    (script,) = code_blocks(STEPS, "sh")
    folder = directory / "deploy" / "compose"
    folder.mkdir(parents=True)
    subprocess.run(["sh", "-ec", script], cwd=directory, check=True)
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def first_steps() -> list[list[str]]:
    """The commands of the page that run in a container of a gateway, before the others start."""
    found = re.findall(r"^docker compose run --rm gateway-1 ([^|\n]+)", STEPS, re.MULTILINE)
    return [shlex.split(words) for words in found]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All services, started as in docs/deploy.md, with a topic that is written and read, and a group."""
    if not S3_SERVER.exists():
        pytest.skip("no S3 server: `make setup` builds versitygw where Go is installed")
    directory = tmp_path_factory.mktemp("composed")
    services = Composed(directory, variables(directory))
    try:
        services.run("bucket")
        services.up("store")
        services.run("root")  # as the gateways depend on it
        services.run("root")  # and at each `up` again
        key, of_prometheus, _ = [services.run("gateway-1", *words).split("\n")[0] for words in first_steps()]
        services.mount("prometheus", of_prometheus)
        services.up("gateway-1", "gateway-2", "maintenance", "prometheus")
        made = Cluster(services, key)
        use(made)
        yield made
    finally:
        services.down()


def use(cluster: Cluster) -> None:
    """Write through one gateway, and read through the other, as a group."""
    json_v2 = {"Content-Type": "application/vnd.kafka.json.v2+json"}
    with cluster.gateway("gateway-1") as one, cluster.gateway("gateway-2") as other:
        body = {"records": [{"value": number} for number in range(100)]}
        found = one.get("/v3/clusters").json()["data"][0]["cluster_id"]
        topic = {"topic_name": "flights", "partitions_count": 2}
        assert one.post(f"/v3/clusters/{found}/topics", json=topic).status_code == 201
        assert one.post("/topics/flights", json=body, headers=json_v2).status_code == 200
        member = {"name": "one", "format": "json", "auto.offset.reset": "earliest"}
        assert other.post("/consumers/readers", json=member).status_code == 200
        path = "/consumers/readers/instances/one"
        assert other.post(f"{path}/subscription", json={"topics": ["flights"]}).status_code == 204
        values: list[int] = []

        def read() -> bool:
            headers = {"Accept": "application/vnd.kafka.json.v2+json"}
            values.extend(record["value"] for record in other.get(f"{path}/records", headers=headers).json())
            return len(values) >= 100

        wait_until(read, "the group has read all records")
        offsets = [{"topic": "flights", "partition": 0, "offset": 0}]
        assert other.post(f"{path}/offsets", json={"offsets": offsets}).status_code == 200
        assert other.get("/topics/flights/partitions/0/records?offset=0").status_code == 200


def test_two_gateways_know_one_another(cluster: Cluster) -> None:
    with cluster.gateway("gateway-1") as client:
        found = client.get("/v3/clusters").json()["data"][0]["cluster_id"]
        brokers = client.get(f"/v3/clusters/{found}/brokers").json()["data"]
    urls = {f"http://{broker['host']}:{broker['port']}" for broker in brokers}
    assert urls == {cluster.url(name, 8082) for name in ("gateway-1", "gateway-2")}


def test_prometheus_reaches_all_gateways_and_the_maintenance(cluster: Cluster) -> None:
    def up() -> bool:
        targets = cluster.prometheus("targets")["activeTargets"]
        return [target["health"] for target in targets] == 3 * ["up"]

    wait_until(up, "all three targets are up")


def test_every_metric_of_the_dashboard_and_of_the_alerts_is_there(cluster: Cluster) -> None:
    pages = [
        httpx.get(f"{cluster.url('gateway-1', 8082)}/metrics", headers=cluster.headers).text,
        httpx.get(f"{cluster.url('maintenance', 9090)}/metrics").text,
    ]
    types = [line.split()[2:4] for page in pages for line in page.splitlines() if line.startswith("# TYPE")]
    series = {name for name, _ in types}
    for name, kind in types:
        if kind == "histogram":
            series |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    asked = metric_names([each for panel in PANELS for each in expressions(panel)])
    asked |= metric_names([rule["expr"] for rule in RULES])
    assert len(asked) > 40
    assert asked - series == set()


def test_every_panel_of_the_dashboard_shows_something(cluster: Cluster) -> None:
    left = {each for panel in PANELS if panel["title"] not in QUIET for each in expressions(panel)}

    for each in left:
        wait_until(
            lambda asked=each: cluster.prometheus("query", query=asked)["result"] != [],  # type: ignore[misc]
            f"there is something of {each}",
            timeout_s=60,
        )
    for panel in PANELS:
        for expression in expressions(panel):
            assert cluster.prometheus("query", query=expression)["resultType"] == "vector"


def test_prometheus_evaluates_every_alert(cluster: Cluster) -> None:
    def evaluated() -> bool:
        groups = cluster.prometheus("rules")["groups"]
        health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        return health == {rule["alert"]: "ok" for rule in RULES}

    wait_until(evaluated, "every rule is evaluated without an error")


def test_the_queries_of_the_runbook_are_answered(cluster: Cluster) -> None:
    queries = [" ".join(each.split()) for each in re.findall(r'lakelog sql "([^"]+)"', RUNBOOK)]
    assert len(queries) == 3
    for query in queries:
        cluster.services.run("gateway-1", "sql", query)


def test_nothing_runs_as_root_or_writes_into_its_image() -> None:
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    for name in ("gateway-1", "gateway-2", "maintenance"):
        assert services[name]["read_only"], name
        assert services[name]["cap_drop"] == ["ALL"], name
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_everything_stops_in_order(cluster: Cluster) -> None:
    """The last test of this file, as it ends what the others use."""
    codes = cluster.services.down()
    assert {name: code for name, code in codes.items() if name != "store"} == {
        "prometheus": 0,
        "maintenance": 0,
        "gateway-2": 0,
        "gateway-1": 0,
    }
