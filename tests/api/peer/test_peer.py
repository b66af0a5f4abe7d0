"""Requests from one gateway to another come to a port that anybody can reach: requests of others are refused
there.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from msgspec.structs import replace

from coordinator.brokers.brokers import asker_of
from coordinator.brokers.peer_secret import PeerSecrets, Target
from coordinator.brokers.peer_wire import decode_outcomes, encode_entries
from coordinator.brokers.peers import ASKER, TARGET
from ingest.writer import Appended
from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import (
    InvalidArgument,
    InvalidTopicName,
    LakelogError,
    RecordTooLarge,
    SequenceGap,
    TopicDeleted,
    UnknownPartition,
)
from log_tables.layout import PEER_SECRET, broker_path
from log_tables.limits import MIB
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.rows import as_batch
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.partitions import entry
from tests.kit.run_credential import is_secured
from tests.kit.support import wait_until

ONE = encode_entries([entry(b"a")])
INTERNAL = "__consumer_offsets"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway for this file alone, because an asker stays on the broker list of its root."""
    with running_gateway(tmp_path_factory.mktemp("asked"), linger_ms=0) as running:
        yield running


def topic_id(gateway: RunningGateway, topic: str) -> str:
    return Cluster.open(open_store(gateway.data), create=False).topic(topic).topic_id


class Asker:
    """A member of the broker list of `gateway`'s root that serves nothing. It is leaving, so no partition is
    given to it.
    """

    URL = "http://asker.invalid"

    def __init__(self, gateway: RunningGateway) -> None:
        self.cluster = Cluster.open(open_store(gateway.data), create=False)
        secret = self.cluster.store.get(PEER_SECRET).decode()
        self.secrets = PeerSecrets([secret], self.cluster.cluster_id)
        brokers = self.cluster.metadata_log.brokers.values()
        self.asked = next(each for each in brokers if each.url != self.URL)
        found = next((each for each in brokers if each.url == self.URL), None)
        self.record = found or self.registered()

    def registered(self) -> BrokerRecord:
        made = self.cluster.metadata_log.register_broker(self.URL)
        made = replace(made, leaving=True, secured=is_secured())
        self.cluster.metadata_log.publish_broker(made)
        return made

    def sign(self, incarnation: str = "") -> None:
        """Give a sign of life that was never given before."""
        sign = f"{incarnation or self.record.incarnation} {SystemClock().unique_id()}"
        self.cluster.store.put(broker_path(self.record.id), sign.encode())

    @property
    def target(self) -> Target:
        found = self.secrets.target(self.asked.incarnation, self.asked.peer_keys)
        assert found is not None
        return found

    def headers(self) -> dict[str, str]:
        return {TARGET: self.target.name, ASKER: asker_of(self.record, self.target)}


def meant(gateway: RunningGateway) -> dict[str, str]:
    """The headers of a request from another live gateway on the root to this one."""
    asker = Asker(gateway)
    asker.sign()
    return asker.headers()


def append(gateway: RunningGateway, to: str, body: bytes = ONE, **query: str) -> httpx.Response:
    """Ask to append to partition 0 of the topic `to`, unless `query` names others."""
    asked = {"topic": to, "topic_id": topic_id(gateway, to), "partition": "0"} | query
    return gateway.client.post("/peer/append", params=asked, content=body, headers=meant(gateway))


def lead(gateway: RunningGateway, to: str, **query: str) -> httpx.Response:
    asked = {"topic": to, "topic_id": topic_id(gateway, to), "partition": "0"} | query
    return gateway.client.post("/peer/lead", params=asked, headers=meant(gateway))


def outcomes(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return list(decode_outcomes(answer.content, 0))


def state(gateway: RunningGateway, topic: str) -> tuple[list[tuple[int, int]], float]:
    """The claims and the ends of the partitions, and what the gateway holds for requests."""
    found = Cluster.open(open_store(gateway.data), create=False).topic(topic)
    tables = [(each.snapshot.leader_epoch, each.high_watermark) for each in found.partitions()]
    metrics = gateway.client.get("/metrics").text
    held = re.search(r"^lakelog_buffer_used_bytes (\S+)$", metrics, re.MULTILINE)
    assert held is not None
    return tables, float(held.group(1))


def test_a_gateway_says_that_it_lives(gateway: RunningGateway) -> None:
    answer = gateway.client.get("/peer/ping", headers=meant(gateway))
    assert (answer.status_code, answer.headers[TARGET]) == (204, Asker(gateway).target.proof)


@pytest.mark.parametrize(
    "path", ["/peer/ping", "/peer/append", "/peer/lead", "/consumers/g/offsets", "/nothing"]
)
@pytest.mark.parametrize("named", [{TARGET: "x.y"}, {TARGET: ""}, {}], ids=["another", "nobody", "none"])
def test_who_means_another_process_is_told_so(
    gateway: RunningGateway, path: str, named: dict[str, str]
) -> None:
    answer = gateway.client.request("GET", path, headers=named)
    if named or path.startswith("/peer/"):
        assert (answer.status_code, answer.json()["error_code"]) == (421, 421)
    else:
        assert answer.status_code == 404
    assert TARGET not in answer.headers


@pytest.mark.parametrize(
    "asker",
    ["", "2", "2.", ".", "x.y", "\u00b2.a", "99.00000000000000000000000000000000", "1", "9" * 5_000 + ".a"],
)
def test_who_does_not_say_who_asks_is_refused(gateway: RunningGateway, asker: str) -> None:
    headers = {**meant(gateway), ASKER: asker}
    sent = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    assert gateway.client.get("/peer/ping", headers=sent).status_code == 421
    del sent[ASKER.encode()]
    assert gateway.client.get("/peer/ping", headers=sent).status_code == 421


def test_who_gives_no_sign_of_life_in_this_root_is_refused(gateway: RunningGateway) -> None:
    asker = Asker(gateway)
    asker.record = asker.registered()

    def status() -> int:
        return gateway.client.get("/peer/ping", headers=asker.headers()).status_code

    asker.sign("another-incarnation")
    wait_until(lambda: status() == 421, "its sign of life is another's")
    asker.sign()
    assert status() == 204
    wait_until(lambda: status() == 421, "it is silent")  # as the gateways of the original are on a copy
    asker.sign()
    assert status() == 204
    asker.cluster.store.delete(broker_path(asker.record.id))
    wait_until(lambda: status() == 421, "its sign of life is gone")


def test_who_has_given_signs_of_life_here_is_let_in_when_one_comes_late(gateway: RunningGateway) -> None:
    asker = Asker(gateway)
    for _ in range(2):
        asker.sign()
        assert gateway.client.get("/peer/ping", headers=asker.headers()).status_code == 204

    def silent() -> bool:
        listed = gateway.client.get(f"{gateway.cluster}/brokers").json()["data"]
        return [each["alive"] for each in listed if each["broker_id"] == asker.record.id] == [False]

    asker.cluster.metadata_log.publish_broker(replace(asker.record, leaving=False))
    wait_until(silent, "it is silent")
    asker.cluster.metadata_log.publish_broker(asker.record)
    assert gateway.client.get("/peer/ping", headers=asker.headers()).status_code == 204


def test_what_proves_who_asks_is_good_for_the_one_asked_only(gateway: RunningGateway) -> None:
    asker = Asker(gateway)
    asker.sign()
    another = asker.secrets.target("another-incarnation", asker.secrets.fingerprints)
    assert another is not None
    elsewhere = asker_of(asker.record, another)
    headers = {**asker.headers(), ASKER: elsewhere}
    assert gateway.client.get("/peer/ping", headers=headers).status_code == 421


def test_what_gateways_ask_is_not_part_of_the_public_api(gateway: RunningGateway) -> None:
    assert not [path for path in gateway.client.get("/openapi.json").json()["paths"] if "peer" in path]


def test_entries_are_appended_in_their_order(gateway: RunningGateway, topic: str) -> None:
    stamped = [
        entry(b"a"),
        entry(b"b", b"c", producer=ProducerStamp(9, 0, 0)),
        entry(b"d", expected_offset=3),
    ]
    assert outcomes(append(gateway, topic, encode_entries(stamped))) == [
        Appended(0, 0, 1),
        Appended(0, 1, 2),
        Appended(0, 3, 1),
    ]
    (again,) = outcomes(append(gateway, topic, encode_entries(stamped[1:2])))
    assert (again.base_offset, again.duplicate) == (1, True)
    (gap,) = outcomes(append(gateway, topic, encode_entries([entry(b"z", producer=ProducerStamp(9, 0, 5))])))
    assert (type(gap), gap.details) == (SequenceGap, {"expected": 2})
    assert state(gateway, topic) == ([(1, 4), (0, 0)], 0)


def test_a_partition_that_is_handed_over_is_led(gateway: RunningGateway, topic: str) -> None:
    assert outcomes(lead(gateway, topic, partition="1")) == [Appended(0, None, 0)]
    assert outcomes(lead(gateway, topic, partition="1")) == [Appended(0, None, 0)]
    assert state(gateway, topic) == ([(0, 0), (1, 0)], 0)


@pytest.mark.parametrize("ask", [append, lead])
@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ({"topic": "nobody-made-it"}, TopicDeleted),
        ({"topic_id": "another"}, TopicDeleted),
        ({"topic": "../../etc"}, TopicDeleted),
        ({"partition": "2"}, UnknownPartition),
        ({"partition": "-1"}, UnknownPartition),
    ],
)
def test_what_is_not_there_is_not_appended_to_nor_led(
    gateway: RunningGateway,
    topic: str,
    ask: Callable[..., httpx.Response],
    query: dict[str, str],
    kind: type[LakelogError],
) -> None:
    before = state(gateway, topic)
    (error,) = outcomes(ask(gateway, topic, **query))
    assert type(error) is (InvalidTopicName if ask is append and ".." in query.get("topic", "") else kind)
    assert state(gateway, topic) == before


def test_a_recreated_topic_is_another(gateway: RunningGateway, topic: str) -> None:
    old = topic_id(gateway, topic)
    assert gateway.client.delete(f"{gateway.cluster}/topics/{topic}").status_code == 204
    gateway.create_topic(topic, 2)
    before = state(gateway, topic)
    for ask in (append, lead):
        (error,) = outcomes(ask(gateway, topic, topic_id=old))
        assert type(error) is TopicDeleted
    assert state(gateway, topic) == before


def test_nobody_appends_to_the_topics_of_the_log_itself(gateway: RunningGateway) -> None:
    made = gateway.client.put("/consumers/g/offsets", json={"offsets": []})
    assert made.status_code < 500

    def nothing_is_appended() -> bool:
        before = state(gateway, INTERNAL)
        (error,) = outcomes(append(gateway, INTERNAL))
        assert type(error) is InvalidTopicName
        return state(gateway, INTERNAL) == before

    wait_until(nothing_is_appended, "nothing is appended, once no group of another test changes")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"\xff" * 100, ONE[:-20], ONE[:100], b"\0" * 10_000],
    ids=["empty", "json", "ff", "cut", "cut short", "zeros"],
)
def test_garbage_is_refused(gateway: RunningGateway, topic: str, body: bytes) -> None:
    before = state(gateway, topic)
    answer = append(gateway, topic, body)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "Traceback" not in answer.text
    assert state(gateway, topic) == before


def test_a_body_that_unpacks_to_very_much_is_refused(gateway: RunningGateway, topic: str) -> None:
    large = as_batch(entry(bytes(65 * MIB)).records)
    sink = pa.BufferOutputStream()
    schema = large.schema.with_metadata({b"lakelog.stamps": b"[[null,null]]"})
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(large)
    before = state(gateway, topic)
    answer = append(gateway, topic, sink.getvalue().to_pybytes())
    assert answer.status_code == 422
    assert "unpacks to more than" in answer.json()["message"]
    assert state(gateway, topic) == before


def test_a_record_larger_than_the_topic_takes_is_refused(gateway: RunningGateway, topic: str) -> None:
    small = gateway.create_topic(f"{topic}-small"[:200], max_message_bytes="1000")
    (error,) = outcomes(append(gateway, small, encode_entries([entry(bytes(1_001))])))
    assert type(error) is RecordTooLarge
    assert state(gateway, small) == ([(0, 0)], 0)


def test_an_entry_without_records_is_refused(gateway: RunningGateway, topic: str) -> None:
    nothing = encode_entries([AppendRequest(as_batch(entry(b"a").records).slice(0, 0), None, None)])
    (error,) = outcomes(append(gateway, topic, nothing))
    assert type(error) is InvalidArgument
    assert state(gateway, topic)[0][0][1] == 0


@pytest.mark.parametrize("query", [{"partition": "one"}, {"acks": "2"}])
def test_a_query_that_is_none_is_refused(gateway: RunningGateway, topic: str, query: dict[str, str]) -> None:
    answer = append(gateway, topic, ONE, **query)
    assert 400 <= answer.status_code < 500
    assert "error_code" in answer.json()
    assert gateway.client.post("/peer/lead", headers=meant(gateway)).status_code == answer.status_code
