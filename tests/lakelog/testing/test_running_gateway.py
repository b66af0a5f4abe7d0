"""The gateway that users' tests run: its life, its faults, and what becomes of both."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from kafka import KafkaProducer

import lakelog
from lakelog.testing import RunningGateway, gateway
from log_tables.clock import SystemClock
from tests.kit.support import ROOT, wait_until


@pytest.fixture(scope="module")
def shared(process: None) -> Iterator[RunningGateway]:
    with gateway() as running:
        yield running


@pytest.fixture(scope="module")
def process() -> None:
    """Every test here starts one."""


@pytest.fixture
def running(shared: RunningGateway) -> Iterator[RunningGateway]:
    yield shared
    shared.heal()


@pytest.fixture
def client(running: RunningGateway) -> Iterator[lakelog.Client]:
    with lakelog.Client(running.url) as client:
        yield client


def created(client: lakelog.Client) -> str:
    """The name of a new topic."""
    name = SystemClock().unique_id()
    client.create_topic(name, 1)
    return name


def test_a_gateway_in_memory_leaves_nothing() -> None:
    with gateway() as running:
        assert Path(running.data).is_dir()
    assert not Path(running.data).exists()
    with pytest.raises(lakelog.Unreachable):
        lakelog.Client(running.url).topics()


def test_a_directory_keeps_what_was_written(tmp_path: Path) -> None:
    for topics in ([], ["t"]):
        with gateway(tmp_path / "root") as running, lakelog.Client(running.url) as client:
            assert client.topics() == topics
            if not topics:
                client.create_topic("t")


def test_settings_of_the_machine_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_HOST", "256.0.0.1")
    (tmp_path / "lakelog.toml").write_text("nonsense")
    monkeypatch.chdir(tmp_path)
    with gateway(auto_create_topics_enable=True, num_partitions=3) as running:
        producer = KafkaProducer(bootstrap_servers=running.kafka)
        assert producer.send("made", b"1").get(30).offset == 0
        producer.close()
        assert lakelog.Client(running.url).partition_count("made") == 3


def test_a_setting_that_cannot_be_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(lakelog.Unreachable, match="ended with exit code 1"), gateway(linger_ms=-1):
        pass
    assert "linger_ms" in capfd.readouterr().err


def test_a_refused_request_is_not_done(running: RunningGateway, client: lakelog.Client) -> None:
    topic = created(client)
    running.refuse(f"/topics/{topic}", error=lakelog.UnknownTopic, times=2)
    for _ in range(2):
        with pytest.raises(lakelog.UnknownTopic, match="as its test wants it"):
            client.topic(topic)
    assert client.topic(topic)["name"] == topic
    running.refuse("/topics", method="post")  # those that are spent do not come back with it
    assert client.topic(topic)["name"] == topic
    assert client.topics()
    client.create_topic(f"{topic}-2")  # it is repeated, as a Retriable may be


def test_a_request_without_an_answer_is_done(running: RunningGateway, client: lakelog.Client) -> None:
    name = SystemClock().unique_id()
    running.lose_answer("/topics", method="POST")
    with pytest.raises(lakelog.OutcomeUnknown):
        client.create_topic(name)
    assert name in client.topics()


def test_a_producer_appends_once_whatever_answer_is_lost(
    running: RunningGateway, client: lakelog.Client
) -> None:
    topic = created(client)
    running.lose_answer(f"/topics/{topic}", method="POST", times=2)
    with lakelog.Producer(running.url) as producer:
        producer.send(topic, b"1").result()
    assert [record.value for record in client.read(topic, 0)] == [b"1"]


def test_a_delayed_request_is_answered_late(running: RunningGateway) -> None:
    running.delay(30, "/topics", times=None)
    with httpx.Client(base_url=running.url, timeout=0.2) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.get("/topics")
        running.heal()
        assert client.get("/topics").status_code == 200


def test_one_that_is_killed_starts_again_with_what_it_acknowledged(
    running: RunningGateway, client: lakelog.Client
) -> None:
    topic, at = created(client), running.url
    with lakelog.Producer(running.url) as producer:
        producer.send(topic, b"1").result()
        running.kill()
        with pytest.raises(lakelog.Unreachable):
            client.topics()
        with pytest.raises(lakelog.Unreachable, match="start it first"):
            running.refuse()
        running.start()
        producer.send(topic, b"2").result()
    assert (running.url, [record.value for record in client.read(topic, 0)]) == (at, [b"1", b"2"])


def test_one_that_is_paused_answers_when_it_goes_on(running: RunningGateway) -> None:
    running.pause()
    with httpx.Client(base_url=running.url, timeout=0.2) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.get("/topics")
        running.resume()
        client.timeout = httpx.Timeout(30)
        assert client.get("/topics").status_code == 200


def test_no_gateway_outlives_its_test() -> None:
    program = (
        "import lakelog.testing as t, sys\nwith t.gateway() as g: print(g.url, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as test:
        assert test.stdout is not None
        url = test.stdout.readline().strip()
        assert httpx.get(f"{url}/topics").json() == []
        test.send_signal(signal.SIGKILL)

    def gone() -> bool:
        try:
            httpx.get(f"{url}/topics")
        except httpx.TransportError:
            return True
        return False

    wait_until(gone, "the gateway has ended")


def test_a_fault_of_no_request_is_refused(running: RunningGateway) -> None:
    with pytest.raises(lakelog.InvalidArgument, match="times is 0"):
        running.delay(1, times=0)
