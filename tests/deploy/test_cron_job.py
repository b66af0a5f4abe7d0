"""The CronJob of docs/maintenance.md: Kubernetes' schemas take it, docs/deploy.md makes the secret that it
names, and its command runs as the image runs it.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.deploy.test_chart import VERSIONS
from tests.house.test_docs import code_blocks
from tests.kit.deployed import LAKELOG, dockerfile, environment_of
from tests.kit.support import ROOT

PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("deploy", "maintenance")}


@pytest.fixture
def job() -> dict[str, Any]:
    blocks = map(yaml.safe_load, code_blocks(PAGES["maintenance"], "yaml"))
    (found,) = (each for each in blocks if each["kind"] == "CronJob")
    return dict(found)


def container(job: dict[str, Any]) -> dict[str, Any]:
    (found,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_it(job: dict[str, Any], version: str) -> None:
    assert kubernetes_validate.validate(job, version, strict=True)


def test_its_credentials_are_of_a_secret_that_the_page_on_deploying_makes(job: dict[str, Any]) -> None:
    (source,) = container(job)["envFrom"]
    assert f"create secret generic {source['secretRef']['name']} --from-literal=AWS_" in PAGES["deploy"]


def test_its_command_runs_as_the_image_runs_it(job: dict[str, Any], tmp_path: Path) -> None:
    entry = next(each["value"] for each in dockerfile().structure if each["instruction"] == "ENTRYPOINT")
    words = [*json.loads(entry), *container(job)["args"]]
    given = {each["name"]: each["value"] for each in container(job)["env"]}
    assert words[0] == "lakelog"
    words[words.index("--data") + 1] = str(tmp_path)
    Cluster.open(open_store(str(tmp_path)))
    done = subprocess.run(
        [*LAKELOG, *words[1:]], env=environment_of(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
