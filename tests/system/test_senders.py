"""Programs that ship lines, by the recipes of docs/senders.md, while the gateway is killed."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.senders import PROGRAMS, recipe, sending, values_of
from tests.kit.support import WAIT_S, free_port, wait_until

TOPIC = "logs"
DOUBLED = {"rsyslog": 0, "syslog-ng": 1_000, "toml": 1_000}
"""So many lines may come twice, by the language of the recipe: those of one request, or none."""

PARTITIONS = 2
ARRIVES_S = 120.0


def begun(root: Path, port: int, kafka_port: int) -> RunningGateway:
    """A gateway at the addresses that the programs know."""
    return start_gateway(root, "--port", str(port), "--kafka-port", str(kafka_port))


def arrived(gateway: RunningGateway) -> int:
    """How many records the topic has."""
    paths = (f"/topics/{TOPIC}/partitions/{index}/offsets" for index in range(PARTITIONS))
    return sum(gateway.client.get(path).json()["end_offset"] for path in paths)


def write(file: Path, lines: range) -> None:
    with file.open("a") as out:
        out.writelines(f"line {number}\n" for number in lines)


def line_of(value: object) -> str:
    """The line that a program has put into a value."""
    (found,) = re.findall(r'"(line [0-9]+)"', json.dumps(value))
    return str(found)


def deliver(language: str, lines: int, directory: Path) -> None:
    root, file, ports = directory / "root", directory / "app.log", (free_port(), free_port())
    gateway = begun(root, *ports)
    try:
        gateway.create_topic(TOPIC, PARTITIONS)
        write(file, range(lines // 2))
        with sending(language, gateway.url, f"127.0.0.1:{ports[1]}", file, directory):
            wait_until(lambda: arrived(gateway) > 0, "the first lines are there", ARRIVES_S)
            gateway.kill()
            write(file, range(lines // 2, lines))
            gateway = begun(root, *ports)
            wait_until(lambda: arrived(gateway) >= lines, "as many lines are there", ARRIVES_S)
        found = Counter(map(line_of, values_of(gateway, TOPIC, PARTITIONS)))
        assert found.keys() == {f"line {number}" for number in range(lines)}
        doubled = [line for line, times in found.items() if times > 1]
        assert len(doubled) <= DOUBLED[language]
        assert max(found.values()) <= 2
    finally:
        gateway.stop()
    assert check(open_store(root)).problems == []


@pytest.mark.parametrize("language", PROGRAMS)
def test_no_line_is_lost_while_the_gateway_is_killed(language: str, tmp_path: Path) -> None:
    deliver(language, 3_000, tmp_path)


@pytest.mark.torture
@pytest.mark.parametrize("language", PROGRAMS)
def test_no_line_of_many_is_lost_while_the_gateway_is_killed(language: str, tmp_path: Path) -> None:
    deliver(language, 100_000, tmp_path)


def test_a_webhook_is_there_once_however_often_it_is_sent(tmp_path: Path) -> None:
    root, ports = tmp_path / "root", (free_port(), free_port())
    command = ["sh", "-c", recipe("sh", url=f"http://127.0.0.1:{ports[0]}")]
    gateway = begun(root, *ports)
    gateway.create_topic(TOPIC, PARTITIONS)
    first = subprocess.run(command, capture_output=True, check=True).stdout
    gateway.kill()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as again:
        gateway = begun(root, *ports)  # it tries again until then
        second, said = again.communicate(timeout=WAIT_S)
    assert again.returncode == 0, said
    assert json.loads(first) == json.loads(second)
    assert [*values_of(gateway, TOPIC, PARTITIONS)] == [{"event": "landed", "tailnum": "N14228"}]
    gateway.stop()
