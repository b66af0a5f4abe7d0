"""Two gateways on one root: what one has committed the other knows, for readers and for producers."""

import threading
from pathlib import Path

import httpx

from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway, two_gateways

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}


def read_all(gateway: RunningGateway) -> dict[int, str]:
    answer = gateway.client.get("/topics/shared/partitions/0/records", params={"offset": 0})
    return {record["offset"]: record["value"] for record in answer.json()}


def test_a_reader_of_one_gateway_sees_what_the_other_committed(tmp_path: Path) -> None:
    with two_gateways(tmp_path, linger_ms=0) as (one, two):
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


def test_a_group_s_request_is_passed_on_as_it_came_slashes_and_media_types_of_old_too(tmp_path: Path) -> None:
    with two_gateways(tmp_path, linger_ms=0) as (one, two):
        one.create_topic("shared")
        one.produce("shared", "first")
        Instance(one.client, "readers", "reader").subscribe("shared")
        reader, typed = "/consumers/readers/instances/reader", "application/vnd.kafka.json.v1+json"
        polled = one.client.get(f"{reader}/records/?timeout=0", headers={"Accept": typed})
        assert [record["value"] for record in polled.json()] == ["first"]
        for gateway in (one, two):  # one of them coordinates the group, the other one passes on
            answer = gateway.client.post(f"{reader}/offsets/", headers={"Content-Type": typed})
            assert (answer.status_code, answer.json()) == (200, []), answer.text
            polled = gateway.client.get(f"{reader}/records/?timeout=0", headers={"Accept": typed})
            assert polled.json() == []
            refused = gateway.client.get(f"{reader}/records/?timeouts=0")
            assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)


def test_an_idempotent_producer_may_go_from_one_gateway_to_the_other(tmp_path: Path) -> None:
    with two_gateways(tmp_path / "root", linger_ms=0) as (one, two):
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
