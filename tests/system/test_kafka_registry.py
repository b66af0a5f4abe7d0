"""Apicurio as a schema registry that keeps its schemas in a topic here, with the serializers of
confluent-kafka: what was written is read back when gateway and registry were killed.
"""

import subprocess
from pathlib import Path

import httpx
import pytest

from tests.kit.apicurio import apicurio, subjects_of
from tests.kit.kafka import kafka_gateway
from tests.kit.kafka_programs import without_java_options
from tests.kit.programs import PYTHON, SOURCES, needed
from tests.kit.support import WAIT_S, free_port

pytestmark = pytest.mark.torture

COUNT = 100
KINDS = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
"""The serializers, and what the registry calls their schemas."""


def test_records_with_schemas_are_read_back_through_kills(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def run(action: str, bootstrap: str, kind: str) -> list[str]:
        command = [str(needed(PYTHON)), str(SOURCES / "python" / "by_registry.py")]
        done = subprocess.run(
            [*command, action, bootstrap, url, kind, f"by-{kind}", str(COUNT)],
            env=without_java_options(),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    expected = [f"by-{kind}-value" for kind in KINDS]
    with (
        kafka_gateway(tmp_path / "root") as gateway,
        apicurio(gateway.bootstrap, port, tmp_path / "registry") as program,
    ):
        program.until(lambda: subjects_of(url) == [], "the registry is there, and empty")
        for kind in KINDS:
            gateway.create_topic(f"by-{kind}")
            run("write", gateway.bootstrap, kind)
        assert subjects_of(url) == expected
        gateway.kill()
        gateway.start()
        run("write", gateway.bootstrap, "avro")
        program.kill()
        program.start()
        program.until(lambda: subjects_of(url) == expected, "the registry has its schemas again")
        for kind, name in KINDS.items():
            found = run("read", gateway.bootstrap, kind)
            assert found == [str(number) for number in range(COUNT)]
            schema = httpx.get(f"{url}/subjects/by-{kind}-value/versions/latest").json()
            assert schema.get("schemaType", "AVRO") == name
