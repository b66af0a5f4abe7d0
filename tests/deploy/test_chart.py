"""The Helm chart: Helm lints and renders it, Kubernetes' schemas take what it makes, and its commands run."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml

from ingest.settings import Settings
from log_tables.root.opening import has_cluster
from log_tables.store.store import open_store
from tests.house.test_docs import code_blocks, section
from tests.kit.deployed import (
    DEPLOY,
    LAKELOG,
    PEER_SECRET,
    answers,
    ended,
    environment_of,
    image_environment,
    running,
    tool,
)
from tests.kit.support import ROOT, S3Server, free_port, wait_until

CHART = DEPLOY / "helm" / "lakelog"
VERSIONS = ("1.27.0", "1.31.0", "1.34.0")
"""Of Kubernetes: the oldest that the chart takes, and newer ones."""

ALL = {
    "storeSecret": "store",
    "storeOptions": {"region": "eu-central-1"},
    "image": {"tag": "0.1.0", "pullSecrets": ["registry"]},
    "gateway": {
        "replicas": 3,
        "advertisedUrl": "https://log.example.com",
        "settings": {"partitions_max": 10_000_000, "commits_cores_max": 0.5, "console_enable": False},
        "tls": {"secret": "certificate", "serverName": "log.example.com", "ownAuthority": True},
        "kafka": {"enabled": True},
    },
    "clusterId": "0a1b2c3d-0000-4000-8000-000000000000",
    "replicate": {
        "enabled": True,
        "target": "s3://elsewhere/lakelog",
        "storeOptions": {"region": "us-east-1"},
        "settings": {"replicate_max_bytes_per_second": 100_000_000},
    },
    "service": {"type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
    "serviceAccount": {"annotations": {"example.com/role": "lakelog"}},
    "podMonitor": {"enabled": True, "secret": "prometheus", "labels": {"release": "prometheus"}},
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"team": "log"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "log", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
"""Every part of the chart at once."""


def helm(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([tool("helm"), *words], capture_output=True, text=True, check=False)


def rendered(directory: Path, values: dict[str, Any], version: str = VERSIONS[-1]) -> dict[str, Any]:
    """The objects that the chart renders from `values`, by kind and name."""
    (directory / "values.yaml").write_text(yaml.safe_dump(values))
    done = helm(
        "template",
        "r",
        CHART,
        "--namespace",
        "logs",
        "--kube-version",
        version,
        "-f",
        directory / "values.yaml",
    )
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in found}


def job(resources: dict[str, Any]) -> str:
    """The name of the only job: that which makes the root."""
    (name,) = (each for each in resources if each.startswith("Job r-lakelog-root"))
    return name


def pods(resources: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in resources.values():
        if resource["kind"] in ("StatefulSet", "Deployment", "Job"):
            yield resource["spec"]["template"]["spec"]


def test_helm_has_nothing_to_say_against_it(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(ALL))
    for words in ((), ("-f", tmp_path / "values.yaml")):
        done = helm("lint", "--strict", "--kube-version", VERSIONS[-1], CHART, *words)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [{}, ALL], ids=["defaults", "all"])
def test_kubernetes_takes_what_it_makes(tmp_path: Path, values: dict[str, Any], version: str) -> None:
    """Pod monitors are a resource of the operator of Prometheus, whose schema Kubernetes does not have."""
    resources = rendered(tmp_path, values, version)
    for name, resource in resources.items():
        if resource["kind"] != "PodMonitor":
            assert kubernetes_validate.validate(resource, version, strict=True), name
    kinds = sorted(resource["kind"] for resource in resources.values())
    others = ["Deployment", "PodMonitor", "PodMonitor"] if values else []
    plain = [
        "Deployment",
        "Job",
        "PodDisruptionBudget",
        "Service",
        "Service",
        "ServiceAccount",
        "StatefulSet",
    ]
    assert kinds == sorted([*plain, *others])


def test_the_job_has_another_name_when_its_pods_change_as_nobody_can_change_them(tmp_path: Path) -> None:
    """A tool such as Argo CD renders it at each sync, as that of an install."""
    first, tag, replicas = (
        rendered(tmp_path, values)
        for values in ({}, {"image": {"tag": "9.9.9"}}, {"gateway": {"replicas": 5}})
    )
    assert job(first) != job(tag)
    assert first[job(first)] == replicas[job(replicas)]


def test_only_an_install_makes_the_root(tmp_path: Path) -> None:
    upgraded = helm("template", "r", CHART, "--is-upgrade", "--kube-version", VERSIONS[-1])
    assert upgraded.returncode == 0, upgraded.stderr
    assert "kind: Job" not in upgraded.stdout
    assert not [each for each in rendered(tmp_path, {"createRoot": False}) if each.startswith("Job ")]
    names = {each["name"]: each.get("value") for each in gateway(rendered(tmp_path, {}))["env"]}
    assert names["LAKELOG_MUST_EXIST"] == "true"


def test_the_values_of_the_page_are_values(tmp_path: Path) -> None:
    (values,) = code_blocks(section((ROOT / "docs" / "deploy.md").read_text(), "Kubernetes"), "yaml")
    resources = rendered(tmp_path, yaml.safe_load(values))
    assert resources["StatefulSet r-lakelog"]["spec"]["replicas"] == 3
    assert "PodMonitor r-lakelog" in resources


def test_pods_have_no_rights_and_write_only_where_they_must(tmp_path: Path) -> None:
    for pod in pods(rendered(tmp_path, ALL)):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]
        assert not pod["enableServiceLinks"]  # Kubernetes would set LAKELOG_PORT
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


def test_secrets_are_named_and_never_held(tmp_path: Path) -> None:
    resources = rendered(tmp_path, ALL)
    assert not any(resource["kind"] == "Secret" for resource in resources.values())
    (env,) = (each for each in gateway(resources)["env"] if each["name"] == "LAKELOG_PEER_SECRET")
    assert env["valueFrom"] == {"secretKeyRef": {"name": "lakelog", "key": "peer-secret"}}
    assert gateway(resources)["envFrom"] == [{"secretRef": {"name": "store"}}]


def gateway(resources: dict[str, Any]) -> dict[str, Any]:
    """The container of a gateway."""
    found: dict[str, Any] = resources["StatefulSet r-lakelog"]["spec"]["template"]["spec"]["containers"][0]
    return found


def test_probes_ask_the_two_paths_that_need_no_credential(tmp_path: Path) -> None:
    container = gateway(rendered(tmp_path, ALL))
    asked = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {name: get["path"] for name, get in asked.items()} == {
        "startupProbe": "/health",
        "livenessProbe": "/health",
        "readinessProbe": "/ready",
    }
    assert {get["scheme"] for get in asked.values()} == {"HTTPS"}


def test_a_pod_has_the_time_that_a_stop_in_order_may_take(tmp_path: Path) -> None:
    (gateways, *_) = [
        pod for pod in pods(rendered(tmp_path, {})) if pod["containers"][0]["name"] == "gateway"
    ]
    stop_s = 3 * Settings.model_fields["shutdown_timeout_ms"].default / 1_000
    assert gateways["terminationGracePeriodSeconds"] >= stop_s + 5


def test_every_variable_is_a_setting(tmp_path: Path) -> None:
    named = {
        each["name"].removeprefix("LAKELOG_").lower(): each.get("value")
        for pod in pods(rendered(tmp_path, ALL))
        for each in pod["containers"][0]["env"]
        if each["name"].startswith("LAKELOG_")
    }
    assert set(named) <= set(Settings.model_fields)
    assert named["partitions_max"] == "10000000"
    assert named["commits_cores_max"] == "0.5"
    assert named["console_enable"] == "false"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"data": "/srv/lakelog"}, "data"),
        ({"peerSecret": ""}, "peerSecret"),
        ({"gateway": {"authenticationMethods": []}}, "authenticationMethods"),
        ({"gateway": {"authenticationMethods": ["password"]}}, "authenticationMethods"),
        ({"gateway": {"replicas": 0}}, "replicas"),
        ({"gateway": {"settings": {"peer_secret": "x"}}}, "peer_secret"),
        ({"gateway": {"setings": {}}}, "setings"),
        ({"maintenance": {"every": "5 minutes"}}, "every"),
        ({"maintainance": {}}, "maintainance"),
        ({"replicate": {"enabled": True}}, "target"),
        ({"replicate": {"target": "/mnt/standby"}}, "target"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = helm("template", "r", CHART, "--kube-version", VERSIONS[-1], "-f", tmp_path / "values.yaml")
    assert done.returncode != 0
    assert said in done.stderr


def test_an_open_cluster_has_to_be_asked_for(tmp_path: Path) -> None:
    values = {"gateway": {"authenticationMethods": [], "insecure": True}}
    names = {each["name"] for each in gateway(rendered(tmp_path, values))["env"]}
    assert "LAKELOG_INSECURE" in names
    assert "LAKELOG_AUTHENTICATION_METHODS" not in names


def started(
    container: dict[str, Any], s3: S3Server, data: str, **own: str
) -> "AbstractContextManager[subprocess.Popen[str]]":
    """The command of a container here, over a bucket of `s3`."""
    variables = {each["name"]: each.get("value", PEER_SECRET) for each in container["env"]}
    variables |= {"LAKELOG_DATA": data, "LAKELOG_STORE_OPTIONS": json.dumps(s3.options), **own}
    variables = {name: text.replace("0.0.0.0", "127.0.0.1") for name, text in variables.items()}
    words = [
        word.replace("0.0.0.0", "127.0.0.1").replace("9090", own["metrics"]) for word in container["args"]
    ]
    return running([*LAKELOG, *words], env=environment_of({**image_environment(), **variables}))


def is_root(url: str, s3: S3Server) -> bool:
    return has_cluster(open_store(url, s3.options, create=False))


def test_its_commands_run_and_end_in_order(tmp_path: Path, s3: S3Server) -> None:
    port, metrics, standby = free_port(), free_port(), f"{s3.bucket('standby')}/root"
    url, data = f"http://127.0.0.1:{port}", f"{s3.bucket('chart')}/root"
    values = {
        "gateway": {"settings": {"log_level": "warning"}},
        "replicate": {"enabled": True, "target": standby},
    }
    resources = rendered(tmp_path, values)
    jobs, replicate = (
        resources[f"Deployment r-lakelog-{name}"]["spec"]["template"]["spec"]["containers"][0]
        for name in ("maintenance", "replicate")
    )
    own = {"LAKELOG_PORT": str(port), "LAKELOG_PEER_URL": url, "metrics": str(metrics)}

    root = resources[job(resources)]["spec"]["template"]["spec"]["containers"][0]
    with started(gateway(resources), s3, data, **own) as early:
        assert early.wait() == 1  # Kubernetes starts it again until the root is there
    with started(root, s3, data, **own) as making:
        assert making.wait() == 0
    with started(gateway(resources), s3, data, **own) as serving:
        wait_until(lambda: answers(f"{url}/ready"), "the gateway is ready")
        assert httpx.get(f"{url}/topics").status_code == 401
        with started(jobs, s3, data, **own) as maintaining:
            wait_until(lambda: answers(f"http://127.0.0.1:{metrics}/metrics"), "the maintenance answers")
            assert ended(maintaining) == 0
        with started(replicate, s3, data, **own) as following:
            wait_until(lambda: is_root(standby, s3), "there is a standby")
            assert ended(following) == 0
        assert ended(serving) == 0
