"""Who wrote which records, by the audit of real gateways, while several principals write to one partition."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import httpx

from api.kafka.clients.errors import ErrorCode
from log_tables.cluster.cluster import Cluster
from log_tables.sql.query import query
from log_tables.store.store import open_store
from tests.kit.audits import audit_rows
from tests.kit.gateway import NEVER_MS
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import asker
from tests.kit.kafka_transactions import add, begin, end, produce
from tests.kit.secured import Secured, bearer, everything
from tests.kit.support import wait_until

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json", "Accept": "application/vnd.kafka.json.v2+json"}
RANGES = {
    "authentication_methods": "api-key",
    "audit_writes": "ranges",
    "audit_writes_interval_ms": 1_000,
    "leader_timeout_ms": NEVER_MS,
    "linger_ms": 5,
}
ROUNDS = 15


def written(root: Path) -> tuple[dict[tuple[int, int], str], dict[tuple[int, int], str]]:
    """(The name in each record of t, the principal of it by the audit log), by partition and offset."""
    cluster = Cluster.open(open_store(str(root)), create=False)
    records = query(cluster, "select partition, offset, value_text from t").to_pylist()
    named = {(row["partition"], row["offset"]): row["value_text"].strip('"') for row in records}
    told: dict[tuple[int, int], str] = {}
    for row in query(cluster, "select * from audit_writes where topic = 't'").to_pylist():
        for offset in range(row["first_offset"], row["last_offset"] + 1):
            assert (row["partition"], offset) not in told
            told[row["partition"], offset] = row["principal"]
    return named, told


def test_each_record_has_the_principal_that_sent_it_whichever_gateway_and_door(tmp_path: Path) -> None:
    made = Secured(tmp_path)
    names = [f"User:u{number}" for number in range(4)]
    keys = {name: made.key(name) for name in names}
    for name in names:
        made.allow(*everything(name))
    admin = made.key()

    def send(name: str, url: str, acks: str, path: str) -> None:
        with httpx.Client(base_url=url, headers=bearer(keys[name]) | JSON, timeout=60) as client:
            for number in range(ROUNDS):
                record = {"value": name} if path != "transactions" else {"topic": "t", "value": name}
                body = {"records": [record] * (1 + number % 3)}
                where = "/consumers/g/transactions" if path == "transactions" else "/topics/t"
                params = {} if path == "transactions" else {"acks": acks}
                client.post(where, json=body, params=params).raise_for_status()

    with ExitStack() as stack:
        gateways = [stack.enter_context(closing(KafkaGateway(tmp_path, dict(RANGES)))) for _ in range(2)]
        gateways[0].running.client.headers.update(bearer(admin))
        gateways[0].create_topic("t", 2)
        jobs = [
            (names[number % 4], gateways[number % 2].running.url, acks, path)
            for number, (acks, path) in enumerate(
                [("all", "produce"), ("1", "produce"), ("all", "transactions"), ("0", "produce")] * 2
            )
        ]
        with ThreadPoolExecutor(len(jobs)) as pool:
            for done in [pool.submit(send, *job) for job in jobs]:
                done.result()
        wait_until(lambda: (0, 0) in written(tmp_path)[1], "the audit has the first record")
        with asker(gateways[1].port) as asking:
            asking.key(keys[names[1]])
            held = begin(asking, "tx")
            add(asking, held, {"t": [0]})
            assert produce(asking, held, "t", names[1].encode()).error_code == ErrorCode.NONE
            assert end(asking, held, 3).error_code == ErrorCode.NONE
        shown = {
            key: httpx.get(
                f"{gateways[0].running.url}/console/topics/t/partitions/0?offset=0",
                headers=bearer(key) | {"Accept": "text/html"},
            ).text
            for key in (admin, keys[names[0]])
        }
    named, told = written(tmp_path)
    assert f"<bdi>{told[0, 0]}</bdi> from 127.0.0.1" in shown[admin]
    assert len(named) == 8 * ROUNDS * 2 + 1
    assert told == named
    assert {*named.values()} == {*names}
    addresses = {row["address"] for row in audit_rows(tmp_path, "kind = 'write'")}
    assert addresses == {"127.0.0.1", None}, "that of a transaction of a Kafka client is not known"


def test_a_gateway_that_is_killed_loses_what_it_has_not_told_and_names_nobody_else(tmp_path: Path) -> None:
    made = Secured(tmp_path)
    admin = made.key()
    for number in range(2):
        gateway = KafkaGateway(
            tmp_path, RANGES | {"leader_timeout_ms": 500, "audit_writes_interval_ms": 600_000}
        )
        gateway.running.client.headers.update(bearer(admin))
        if number == 0:
            gateway.create_topic("t", 2)
        for _ in range(3):
            gateway.running.produce("t", "User:admin", partition=0).raise_for_status()
        if number == 0:
            gateway.kill()
        else:
            gateway.close()
    named, told = written(tmp_path)
    assert len(named) == 6
    assert told == {(0, offset): "User:admin" for offset in (3, 4, 5)}
