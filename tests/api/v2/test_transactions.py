"""Transactions over HTTP and in Python, at a real gateway: whole and once, refused with nothing applied."""

import json
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import lakelog
from lakelog.client.transaction import Sent
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import pending_files
from log_tables.errors import (
    Conflict,
    InvalidArgument,
    OutcomeUnknown,
    RecordTooLarge,
    StaleGeneration,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.layout import CONSUMER_OFFSETS, STAGING
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from log_tables.segments.staging import PartitionRecords, stage
from log_tables.store.store import open_store
from tests.kit.consumers import Instance, settle
from tests.kit.gateway import RunningGateway, running_gateway, start_gateway
from tests.kit.support import free_port, wait_until

JSON = "application/vnd.kafka.json.v2+json"
ARROW = "application/vnd.apache.arrow.stream"


class Scene:
    """A topic of three records, one for results, and an instance that was given all of the first."""

    def __init__(self, gateway: RunningGateway, name: str) -> None:
        self.gateway, self.group = gateway, f"group-{name}"
        self.source = gateway.create_topic(f"{name}-in", 1)
        self.results = gateway.create_topic(f"{name}-out", 2)
        gateway.produce(self.source, "a", "b", "c")
        self.instance = Instance(gateway.client, self.group, "m")
        self.instance.subscribe(self.source)
        assert self.instance.values(3) == ["a", "b", "c"]

    def body(self, last: int = 2, **more: Any) -> dict[str, Any]:
        """Offsets up to `last`, and a record for each partition of the results."""
        return {
            "offsets": [{"topic": self.source, "partition": 0, "offset": last}],
            "records": [{"topic": self.results, "partition": p, "value": [p, last]} for p in range(2)],
            **more,
        }

    def transact(self, body: Any, key: str = "", member: str = "/instances/m") -> httpx.Response:
        headers = {"Content-Type": JSON} | ({"Idempotency-Key": key} if key else {})
        path = f"/consumers/{self.group}{member}/transactions"
        return self.gateway.client.post(path, content=json.dumps(body), headers=headers)

    def values(self) -> list[list[Any]]:
        """What the results hold, by partition."""
        return [values(self.gateway, self.results, partition) for partition in range(2)]

    def check_nothing(self) -> None:
        """Nothing is committed, appended or staged."""
        assert self.instance.committed(self.source, 0) == {}
        assert self.values() == [[], []]


def values(gateway: RunningGateway, topic: str, partition: int) -> list[Any]:
    answer = gateway.client.get(f"/topics/{topic}/partitions/{partition}/records", params={"offset": 0})
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()]


@pytest.fixture
def scene(gateway: RunningGateway, request: pytest.FixtureRequest) -> Scene:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return Scene(gateway, name[:180])


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
    """Another one has taken over what it was given: its work must not count."""
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


# In Python.


def consumer(scene: Scene, **settings: Any) -> lakelog.Consumer:
    given = {"auto_offset_reset": "earliest", "auto_commit": False, **settings}
    return lakelog.Consumer(scene.gateway.url, f"{scene.group}-py", scene.source, **given)


def test_a_block_commits_what_was_handed_out_with_what_it_sends(scene: Scene) -> None:
    with consumer(scene) as reading:
        table = reading.poll(30_000)
        with reading.transaction() as transaction:
            for number in range(table.num_rows):
                transaction.send(scene.results, b"%d" % number, key=b"1", partition=1, headers=[("h", b"x")])
        assert transaction.offsets == (Sent(scene.results, 1, 0, 3),)
        assert transaction.number == 1
        assert reading.committed() == {(scene.source, 0): 3}
        with reading.transaction() as empty:
            pass
        assert empty.offsets == ()
    assert scene.values() == [[], [0, 1, 2]]


def test_a_block_that_fails_sends_nothing_and_its_records_come_again(scene: Scene) -> None:
    with consumer(scene) as reading:
        assert next(reading).value == b'"a"'
        with reading.transaction() as transaction:
            transaction.send(scene.results, b"0", partition=0)
        assert [next(reading).value for _ in range(2)] == [b'"b"', b'"c"']
        with pytest.raises(ZeroDivisionError), reading.transaction() as transaction:
            transaction.send(scene.results, b"%d" % (1 // 0), partition=0)
        assert [next(reading).value for _ in range(2)] == [b'"b"', b'"c"']
        assert reading.committed() == {(scene.source, 0): 1}
    assert scene.values() == [[0], []]


@pytest.mark.parametrize(
    ("topic", "value", "error"),
    [("there-is-none", b"1", UnknownTopic), ("RESULTS", b"x" * 2_000_000, RecordTooLarge)],
)
def test_what_the_gateway_refuses_the_end_of_the_block_raises(
    scene: Scene, topic: str, value: bytes, error: type[Exception]
) -> None:
    with consumer(scene) as reading:
        assert reading.poll(30_000).num_rows == 3
        with pytest.raises(error), reading.transaction() as transaction:
            transaction.send(topic.replace("RESULTS", scene.results), value)
        assert reading.poll(30_000).num_rows == 3
        assert reading.committed() == {}
    assert scene.values() == [[], []]


def test_a_transaction_asks_for_a_consumer_that_does_not_commit_by_itself(scene: Scene) -> None:
    with consumer(scene, auto_commit=True) as reading, pytest.raises(InvalidArgument, match="auto_commit"):
        reading.transaction()


def test_transactions_do_not_nest_and_take_bytes(scene: Scene) -> None:
    with consumer(scene) as reading:
        with reading.transaction() as transaction:
            with pytest.raises(TypeError, match="bytes"):
                transaction.send(scene.results, "text")  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="already"), reading.transaction():
                pass
        assert transaction.number is None


def test_what_is_sent_outside_of_the_block_is_refused(scene: Scene) -> None:
    with consumer(scene) as reading:
        with reading.transaction() as transaction:
            with pytest.raises(UnknownPartition, match="no partition -1"):
                transaction.send(scene.results, b"0", partition=-1)
            with pytest.raises(TypeError, match="the topic is NoneType"):
                transaction.send(None, b"0")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="the transaction has ended"):
            transaction.send(scene.results, b"0")
    assert scene.values() == [[], []]


def test_the_work_of_who_was_rebalanced_meanwhile_is_done_again(scene: Scene) -> None:
    path = f"{scene.gateway.cluster}/topics/{scene.source}"
    assert scene.gateway.client.patch(path, json={"partitions_count": 2}).status_code == 200
    with consumer(scene) as reading:
        assert reading.poll(30_000).num_rows == 3
        other = Instance(scene.gateway.client, f"{scene.group}-py", "other")
        other.subscribe(scene.source)
        with pytest.raises(StaleGeneration), reading.transaction() as transaction:
            transaction.send(scene.results, b"1", partition=0)
        again = 0

        def all_came_again() -> bool:
            nonlocal again
            again += reading.poll(100).num_rows + len(other.poll())
            return bool(again >= 3)

        wait_until(all_came_again, "all records came again")
        assert again == 3
    assert scene.values() == [[], []]


class Lossy(httpx.BaseTransport):
    """A network that loses the answers to transactions, as often as it is told to."""

    def __init__(self, losses: int) -> None:
        self._inner, self.losses = httpx.HTTPTransport(), losses

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        if request.url.path.endswith("/transactions") and self.losses > 0:
            self.losses -= 1
            answer.read()
            raise httpx.ReadError("the answer was lost, on purpose")
        return answer


def test_an_answer_that_is_lost_is_asked_for_again(scene: Scene) -> None:
    with consumer(scene, transport=Lossy(2)) as reading:
        assert reading.poll(30_000).num_rows == 3
        with reading.transaction() as transaction:
            transaction.send(scene.results, b"1", partition=0)
        assert transaction.offsets == (Sent(scene.results, 0, 0, 1),)
    assert scene.values() == [[1], []]


def test_what_became_of_a_transaction_is_known_before_the_consumer_goes_on(scene: Scene) -> None:
    network = Lossy(1)
    with consumer(scene, transport=network, retry_ms=0) as reading:
        assert reading.poll(30_000).num_rows == 3
        with pytest.raises(OutcomeUnknown), reading.transaction() as transaction:
            transaction.send(scene.results, b"1", partition=0)
        scene.gateway.produce(scene.source, "d")
        assert reading.poll(30_000).num_rows == 1
        assert transaction.offsets == (Sent(scene.results, 0, 0, 1),)
    assert scene.values() == [[1], []]


# Death.

PARTITIONS = 3
WORKERS = 2


class Flow:
    """Workers that copy one topic into another, each input once, while their gateway is killed."""

    def __init__(self, data: Path, records: int) -> None:
        self._data, self._port = data, free_port()
        self.gateway = self.start()
        for name in ("in", "out"):
            self.gateway.create_topic(name, PARTITIONS)
        for partition in range(PARTITIONS):
            self.gateway.produce("in", *range(partition, records, PARTITIONS), partition=partition)
        self.records = records
        self.done = threading.Semaphore(0)
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(f"w{n}",)) for n in range(WORKERS)]
        for thread in self._threads:
            thread.start()

    def start(self) -> RunningGateway:
        return start_gateway(self._data, "--port", str(self._port), linger_ms=1)

    def _work(self, name: str) -> None:
        url = f"http://127.0.0.1:{self._port}"
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "auto_commit": False}
        with lakelog.Consumer(url, "g", "in", name=name, retry_ms=60_000, **settings) as reading:
            while not self._end.is_set():
                table = reading.poll(200, max_bytes=400)
                if not table.num_rows:
                    continue
                try:
                    with reading.transaction() as transaction:
                        for value in table.column("value").to_pylist():
                            transaction.send("out", value, key=value)
                            transaction.send("out", b"-" + value, key=b"-" + value)
                except Conflict:
                    continue
                self.done.release()

    def committed(self) -> int:
        answer = self.gateway.client.get("/consumers/g/offsets")
        return sum(at["offset"] for at in answer.json().get("offsets", []))

    def kill(self, draw: ManualClock) -> None:
        """After some transactions, in the middle of another one."""
        for _ in range(int(draw.random() * 4)):
            assert self.done.acquire(timeout=60)
        if draw.random() < 0.7:
            staging = self._data / "staging"
            wait_until(lambda: staging.is_dir() and any(staging.iterdir()), "something is staged")
        self.gateway.kill()
        self.gateway = self.start()

    def finish(self) -> Counter[bytes]:
        """Wait until all is consumed; what came out of it."""
        wait_until(lambda: self.committed() == self.records, "all is consumed", 90)
        self._end.set()
        for thread in self._threads:
            thread.join()
        with lakelog.Client(self.gateway.url) as client:
            found = Counter(r.value or b"" for p in range(PARTITIONS) for r in client.read("out", p))
        self.gateway.stop()
        return found


def flow(data: Path, seed: int, kills: int, records: int) -> None:
    draw, running = ManualClock(seed=seed), Flow(data, records)
    for _ in range(kills):
        running.kill(draw)
    found = running.finish()
    assert found == Counter(b"%s%d" % (sign, n) for n in range(records) for sign in (b"", b"-"))
    assert check(open_store(data)).problems == []


def test_each_input_has_its_output_once_though_the_gateway_is_killed(tmp_path: Path, seed: int) -> None:
    flow(tmp_path / "data", seed, kills=3, records=400)


@pytest.mark.torture
def test_each_input_has_its_output_once_though_the_gateway_is_killed_often(tmp_path: Path, seed: int) -> None:
    flow(tmp_path / "data", seed, kills=20, records=6_000)


def test_what_a_gateway_left_is_applied_though_nobody_asks(tmp_path: Path) -> None:
    """It is killed before it could mark a transaction; its client is gone. The next gateway sees to it."""
    staging = tmp_path / "staging"
    body = {"records": [{"topic": "out", "partition": p, "value": p} for p in range(2)]}
    gateway = start_gateway(tmp_path, linger_ms=0)
    gateway.create_topic("out", 2)
    post = threading.Thread(target=_post_once, args=(f"{gateway.url}/consumers/g/transactions", body))
    post.start()
    wait_until(lambda: staging.is_dir() and any(staging.iterdir()), "something is staged")
    gateway.kill()
    post.join()
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        store = open_store(tmp_path)
        log = Cluster.open(store, create=False).cached_topic(CONSUMER_OFFSETS)

        def nothing_is_pending() -> bool:
            if log is None:
                return True
            log.partition(0).refresh()
            return not pending_files(log.partitions())

        wait_until(nothing_is_pending, "nothing is pending")
        counts = {len(values(gateway, "out", partition)) for partition in range(2)}
    assert counts in ({0}, {1})


def _post_once(url: str, body: dict[str, Any]) -> None:
    with suppress(httpx.TransportError):
        httpx.post(url, content=json.dumps(body), headers={"Content-Type": JSON})
