"""Two gateways on one root, both producing to the same partitions: taking turns may be slow, never wrong."""

import json
import threading
from pathlib import Path

import httpx
import pytest

from log_tables.fsck import check
from log_tables.store import open_store
from tests.gateway import RunningGateway, running_gateway
from tests.support import S3Server

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}


def write_in_turns(gateways: list[RunningGateway], requests: int) -> dict[int, str]:
    """Each gateway gets `requests` requests from a client of its own, all at once; what was acknowledged."""
    acknowledged: dict[int, str] = {}
    lock = threading.Lock()

    def write(writer: int, url: str) -> None:
        for number in range(requests):
            value = f"{writer}-{number}"
            body = json.dumps({"records": [{"value": value}]})
            while True:
                answer = httpx.post(
                    f"{url}/topics/shared/partitions/0", content=body, headers=JSON, timeout=60
                )
                if answer.status_code == 200:
                    break
                # Fenced by the other: nothing was written, so the same request may be repeated.
                assert answer.status_code == 503, answer.text
                assert answer.json()["error_code"] == 50003, answer.text
            offset = answer.json()["offsets"][0]["offset"]
            with lock:
                assert offset not in acknowledged
                acknowledged[offset] = value

    threads = [threading.Thread(target=write, args=(n, g.url)) for n, g in enumerate(gateways)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return acknowledged


def read_all(gateway: RunningGateway) -> dict[int, str]:
    answer = gateway.client.get("/topics/shared/partitions/0/records", params={"offset": 0})
    return {record["offset"]: record["value"] for record in answer.json()}


def check_turns(root: str, options: dict[str, str], requests: int) -> None:
    settings = {"linger_ms": 0, "store_options": json.dumps(options)}
    with running_gateway(root, **settings) as one, running_gateway(root, **settings) as two:
        one.create_topic("shared")
        acknowledged = write_in_turns([one, two], requests)
        assert len(acknowledged) == 2 * requests
        assert read_all(one) == acknowledged
        assert read_all(two) == acknowledged
        assert sorted(acknowledged) == list(range(2 * requests))
    report = check(open_store(root, options))
    assert report.problems == []
    shared = next(p for p in report.partitions if p.directory == "topics/shared/0")
    assert shared.leader_epoch >= 2


def test_two_gateways_on_one_disk_never_double_or_lose(tmp_path: Path) -> None:
    check_turns(str(tmp_path), {}, requests=60)


def test_two_gateways_on_one_bucket_never_double_or_lose(s3: S3Server) -> None:
    check_turns(s3.bucket("two-gateways"), s3.options, requests=25)


@pytest.mark.torture
def test_two_gateways_take_turns_for_long(tmp_path: Path) -> None:
    check_turns(str(tmp_path), {}, requests=2_000)


def test_a_reader_of_one_gateway_sees_what_the_other_committed(tmp_path: Path) -> None:
    with running_gateway(tmp_path, linger_ms=0) as one, running_gateway(tmp_path, linger_ms=0) as two:
        one.create_topic("shared")
        one.produce("shared", "first")
        assert read_all(two) == {0: "first"}
        waiting: list[httpx.Response] = []
        reader = threading.Thread(
            target=lambda: waiting.append(
                two.client.get("/topics/shared/partitions/0/records", params={"offset": 1, "timeout": 20_000})
            )
        )
        reader.start()
        one.produce("shared", "second")
        reader.join()
        assert [record["value"] for record in waiting[0].json()] == ["second"]


def test_an_idempotent_producer_may_go_from_one_gateway_to_the_other(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "root", linger_ms=0) as one, running_gateway(tmp_path / "root") as two:
        one.create_topic("shared")
        for number, gateway in enumerate([one, two, one, two, two, one]):
            answer = gateway.client.post(
                "/topics/shared/partitions/0",
                json={"records": [{"value": number}]},
                headers={**JSON, "Producer-Id": "7", "Producer-Epoch": "0", "Producer-Seq": str(number)},
            )
            assert answer.status_code == 200, answer.text
            assert answer.json()["offsets"][0]["offset"] == number
        expected = {"Expected-Offset": "6"}
        answer = two.client.post(
            "/topics/shared/partitions/0", json={"records": [{"value": 6}]}, headers={**JSON, **expected}
        )
        assert answer.status_code == 200, answer.text
