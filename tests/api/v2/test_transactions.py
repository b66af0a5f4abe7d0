"""Transactions over HTTP, at a real gateway: whole and once, refused with nothing applied."""

import json
from typing import Any

import pyarrow as pa
import pytest

from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.layout import STAGING
from log_tables.record import Record, input_batch
from log_tables.segments.staging import PartitionRecords, stage
from log_tables.store.store import open_store
from tests.kit.consumers import Instance, settle
from tests.kit.gateway import RunningGateway
from tests.kit.support import wait_until
from tests.kit.transaction_scene import ARROW, JSON, Scene


@pytest.fixture
def scene(gateway: RunningGateway, request: pytest.FixtureRequest) -> Scene:
    return Scene.of(gateway, request)


def test_records_and_offsets_come_as_one(scene: Scene) -> None:
    answer = scene.transact(scene.body())
    assert answer.status_code == 200, answer.text
    offsets = sorted(answer.json()["offsets"], key=lambda placed: placed["partition"])
    assert offsets == [
        {"topic": scene.results, "partition": p, "base_offset": 0, "count": 1} for p in range(2)
    ]
    assert scene.values() == [[[0, 2]], [[1, 2]]]
    assert scene.instance.committed(scene.source, 0) == {0: 3}


def test_transactions_are_numbered_and_keep_their_order(scene: Scene) -> None:
    numbers = [scene.transact(scene.body(last)).json()["transaction"] for last in range(3)]
    assert numbers == [1, 2, 3]
    assert scene.values() == [[[p, last] for last in range(3)] for p in range(2)]


def test_a_repeat_is_answered_and_not_done_again(scene: Scene) -> None:
    first = scene.transact(scene.body(), "k")
    scene.gateway.produce(scene.results, "between", partition=0)
    again = scene.transact(scene.body(), "k")
    assert again.json() == first.json()
    assert scene.values() == [[[0, 2], "between"], [[1, 2]]]


def test_a_retry_key_with_another_body_is_refused(scene: Scene) -> None:
    assert scene.transact(scene.body(1), "k").status_code == 200
    refused = scene.transact(scene.body(2), "k")
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40911)
    assert scene.values() == [[[0, 1]], [[1, 1]]]
    assert scene.instance.committed(scene.source, 0) == {0: 2}


@pytest.mark.parametrize("keys", [[b"k", b"l"], ["ké".encode()], [b"k\xe9"]], ids=["two", "UTF-8", "Latin-1"])
def test_a_key_that_gateways_might_read_otherwise_is_refused(scene: Scene, keys: list[bytes]) -> None:
    headers = [(b"Content-Type", JSON.encode()), *((b"Idempotency-Key", key) for key in keys)]
    path = f"/consumers/{scene.group}/instances/m/transactions"
    refused = scene.gateway.client.post(path, content=json.dumps(scene.body()), headers=headers)
    assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)
    scene.check_nothing()


def test_a_forgotten_key_may_be_used_again(scene: Scene) -> None:
    assert scene.transact(scene.body(0), "k").status_code == 200
    assert scene.transact(scene.body(1, forget=["k"]), "l").status_code == 200
    assert scene.transact(scene.body(2), "k").json()["transaction"] == 3


def test_who_is_no_member_commits_the_next_offsets(scene: Scene) -> None:
    scene.instance.delete()
    assert scene.transact(scene.body(2), member="").status_code == 200
    found = scene.gateway.client.get(f"/consumers/{scene.group}/offsets").json()["offsets"]
    assert [(at["partition"], at["offset"]) for at in found] == [(0, 2)]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"records": [{"topic": "there-is-none", "value": 1}]}, 404, 40401),
        ({"records": [{"topic": "__consumer_offsets", "value": 1}]}, 400, 40002),
        ({"records": [{"value": 1}]}, 422, 42206),
        ({"records": [{"topic": "RESULTS", "partition": 2, "value": 1}]}, 422, 42206),
        ({"records": [{"topic": "RESULTS", "value": "x" * 2_000_000}]}, 413, 413),
        ({"records": [{"topic": "RESULTS", "value": "x" * 40_000_000}]}, 413, 413),
        ({"generation": 0}, 409, 40912),
        ({"offsets": [{"topic": "SOURCE", "partition": 0, "offset": 3}]}, 416, 41601),
        ({"offsets": [{"topic": "SOURCE", "partition": 1, "offset": 0}]}, 404, 40402),
        ({"offsets": [{"topic": "RESULTS", "partition": 0, "offset": -1}]}, 409, 40913),
        ({"offsets": [], "records": []}, 422, 42206),
        ({"offsets": [{"topic": "SOURCE", "partition": 0, "offset": 0}] * 2}, 422, 42206),
        ({"staged": [{"path": "topics/x", "runs": []}]}, 400, 40002),
        ({"misspelt": 1}, 422, 42206),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_applied(
    scene: Scene, change: dict[str, Any], status: int, code: int
) -> None:
    body = json.dumps({**scene.body(), **change})
    body = body.replace("RESULTS", scene.results).replace("SOURCE", scene.source)
    refused = scene.transact(json.loads(body), "k")
    assert (refused.status_code, refused.json()["error_code"]) == (status, code)
    scene.check_nothing()
    assert scene.transact(scene.body(), "k").status_code == 200


def test_broken_bodies_and_keys_are_refused(scene: Scene) -> None:
    client, path = scene.gateway.client, f"{scene.instance.path}/transactions"
    for content, kind in ((b"{", JSON), (b"nonsense", ARROW)):
        refused = client.post(path, content=content, headers={"Content-Type": kind})
        assert (refused.status_code, refused.json()["error_code"]) == (400, 400)
    assert client.post(path, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert scene.transact(scene.body(), "k" * 250).status_code == 400
    scene.check_nothing()


def test_who_has_lost_a_partition_cannot_commit_for_it(scene: Scene) -> None:
    """Another member has taken over the partition: the work of the first must not count."""
    generation = int(scene.gateway.client.get(f"{scene.instance.path}/assignments").headers["Generation"])
    other = Instance(scene.gateway.client, scene.group, "n")
    other.subscribe(scene.source)
    scene.instance.send("DELETE", "subscription")
    settle([other])
    refused = scene.transact(scene.body(generation=generation))
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40912)
    refused = scene.transact(scene.body())
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40913)
    refused = scene.transact(scene.body(), member="")
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40914)
    scene.check_nothing()


def test_a_transaction_as_arrow(scene: Scene) -> None:
    frame = {"offsets": [{"topic": scene.source, "partition": 0, "offset": 2}]}
    schema = pa.schema([("topic", pa.string()), ("value", pa.binary()), ("partition", pa.int32())])
    schema = schema.with_metadata({"transaction": json.dumps(frame)})
    batch = pa.record_batch([[scene.results] * 3, [b"1", b"2", b"3"], [0, 1, 0]], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    content = sink.getvalue().to_pybytes()
    path = f"{scene.instance.path}/transactions"
    answer = scene.gateway.client.post(path, content=content, headers={"Content-Type": ARROW})
    assert answer.status_code == 200, answer.text
    assert scene.values() == [[1, 3], [2]]
    assert scene.instance.committed(scene.source, 0) == {0: 3}


def test_what_was_staged_before_is_appended_and_the_file_goes(scene: Scene) -> None:
    store = open_store(scene.gateway.data)
    topic = Cluster.open(store, create=False).topic(scene.results)
    batch = input_batch([Record(b"1"), Record(b"2")], 0)
    staged = stage(
        store, SystemClock(), scene.group, [PartitionRecords(topic.name, topic.topic_id, 1, [batch])]
    )
    body = {"staged": [{"path": staged.path, "runs": [_json(run) for run in staged.runs]}]}
    scene.instance.delete()
    answer = scene.transact(body, "k", member="")
    assert answer.status_code == 200, answer.text
    assert scene.values() == [[], [1, 2]]
    refused = scene.transact(body, "l", member="")
    assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)

    def left() -> list[str]:
        return [item.path for item in store.list(f"{STAGING}/")]

    wait_until(lambda: staged.path not in left(), "the staged file is deleted")
    assert scene.transact(body, "k", member="").json() == answer.json()
    refused = scene.transact(body, "l", member="")
    assert (refused.status_code, refused.json()["error_code"]) == (400, 40002)


def _json(run: Any) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__struct_fields__}


def test_transactions_are_counted(scene: Scene) -> None:
    scene.transact(scene.body(), "k")
    scene.transact(scene.body(), "k")
    text = scene.gateway.client.get("/metrics").text
    for what in ("committed", "applied", "repeated"):
        assert float(text.split(f"\nlakelog_transactions_{what}_total ")[1].split()[0]) >= 1
