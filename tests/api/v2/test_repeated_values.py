"""Bare values that are sent again: to the same gateway, to another one, after a part of a request failed."""

import asyncio
from functools import partial
from pathlib import Path

import httpx

from log_tables.cluster.acl import Operation, ResourceType
from log_tables.testing import Fault, FaultyStore, refused
from tests.kit.gateway import RunningGateway, running_gateway, start_gateway, two_gateways
from tests.kit.produce import ends, post
from tests.kit.secured import Secured, acl, bearer
from tests.kit.served import Served, served
from tests.kit.support import wait_until

NDJSON = "application/x-ndjson"
LINES = b"".join(b'{"k":%d}\n' % number for number in range(40))
PATH = "/topics/t/values?key=/k"


def send(gateway: RunningGateway, body: bytes = LINES, path: str = PATH, key: str = "a") -> httpx.Response:
    answer = post(gateway, path, body, NDJSON, Idempotency_Key=key)
    assert answer.status_code == 200, answer.text
    return answer


def test_a_repeat_is_found_by_a_gateway_that_was_killed(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path)
    gateway.create_topic("t", 2)
    first = send(gateway).json()
    gateway.kill()
    with running_gateway(tmp_path) as again:
        assert send(again).json() == first
        assert sum(ends(again, "t")) == 40


def test_a_repeat_is_found_by_another_gateway(tmp_path: Path) -> None:
    with two_gateways(tmp_path) as (one, other):
        one.create_topic("t", 2)
        first = send(one)
        wait_until(lambda: other.client.get("/topics/t").status_code == 200, "the other one knows the topic")
        assert send(other).json() == first.json()
        whole = [send(gateway, b"1\n2", "/topics/t/values", "b").json() for gateway in (other, one)]
        assert whole[0] == whole[1], "records without a key, too"
        assert sum(ends(one, "t")) == 42


def test_a_repeat_to_a_named_partition_is_found_though_there_are_more_of_them(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway:
        gateway.create_topic("t", 1)
        first = send(gateway, path=f"{PATH}&partition=0").json()
        clusters = gateway.client.get("/v3/clusters").json()["data"]
        topic = f"/v3/clusters/{clusters[0]['cluster_id']}/topics/t"
        assert gateway.client.patch(topic, json={"partitions_count": 3}).is_success
        assert send(gateway, path=f"{PATH}&partition=0").json() == first


def test_the_same_key_of_somebody_else_is_another_request(tmp_path: Path) -> None:
    """Keys belong to their principal, also at a gateway that only forwards the request."""
    root = Secured(tmp_path)
    with two_gateways(tmp_path, authentication_methods="api-key") as (one, other):
        ann, bob = bearer(root.key("User:ann")), bearer(root.key("User:bob"))
        root.allow(*(acl(name, Operation.ALL, ResourceType.TOPIC, "t") for name in ("User:ann", "User:bob")))
        one.client.headers.update(bearer(root.key()))
        wait_until(lambda: one.client.get("/topics").is_success, "the key is known")
        one.create_topic("t", 2)

        def sent(gateway: RunningGateway, who: dict[str, str]) -> object:
            headers = {"Content-Type": NDJSON, "Idempotency-Key": "a", **who}
            answer = gateway.client.post(PATH, content=LINES, headers=headers)
            answer.raise_for_status()
            return answer.json()

        def lets_in(gateway: RunningGateway, who: dict[str, str]) -> bool:
            return gateway.client.get("/topics/t", headers=who).is_success

        for gateway in (one, other):
            for who in (ann, bob):
                wait_until(partial(lets_in, gateway, who), "each is let in")
        first, second = sent(one, ann), sent(other, bob)
        assert first != second
        assert (sent(other, ann), sent(one, bob)) == (first, second)
        assert sum(ends(one, "t")) == 80


def test_a_failure_in_one_partition_is_the_answer_and_a_repeat_appends_what_is_missing(
    tmp_path: Path,
) -> None:
    stores: list[FaultyStore] = []

    def faulty(store: object) -> FaultyStore:
        stores.append(FaultyStore(store))  # type: ignore[arg-type]
        return stores[-1]

    async def ask(serving: Served) -> httpx.Response:
        headers = {"Content-Type": NDJSON, "Idempotency-Key": "a"}
        return await serving.client.post(PATH, content=LINES, headers=headers)

    async def end_of(serving: Served, partition: int) -> int:
        answer = await serving.client.get(f"/topics/t/partitions/{partition}/offsets")
        return int(answer.json()["end_offset"])

    async def scene() -> None:
        async with served(tmp_path, faulty) as serving:
            created = {"topic_name": "t", "partitions_count": 2}
            cluster = (await serving.client.get("/v3/clusters")).json()["data"][0]["cluster_id"]
            await serving.client.post(f"/v3/clusters/{cluster}/topics", json=created)
            for partition in range(2):  # which are led here then
                assert (await serving.produce("t", {"value": 0}, partition=partition)).status_code == 200
            stores[0].faults.append(Fault(1, refused, path="partition=1/"))
            failed = await ask(serving)
            assert (failed.status_code, failed.json()["error_code"]) == (503, 50003), failed.text
            appended = await end_of(serving, 0) - 1
            assert 0 < appended < 40
            assert await end_of(serving, 1) == 1
            again = await ask(serving)
            assert again.json()["offsets"] == [
                {"partition": 0, "base_offset": 1, "count": appended},
                {"partition": 1, "base_offset": 1, "count": 40 - appended},
            ]
            assert [await end_of(serving, 0), await end_of(serving, 1)] == [1 + appended, 41 - appended]

    asyncio.run(scene())
