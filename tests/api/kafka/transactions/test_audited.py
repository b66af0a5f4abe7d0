"""Transactions in the audit log: denials, and a producer that another principal ends."""

from collections.abc import Callable
from pathlib import Path

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.produce import InitProducerIdRequest
from api.kafka.protocol.messages.transactions import DescribeTransactionsRequest
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.audits import audit_rows, short, wait_for_audit
from tests.kit.kafka import kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_transactions import TIMEOUT_MS, Held, add, begin, end, pend, produce
from tests.kit.secured import ADMIN, Secured, acl, bearer

DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def init(asking: Asker, held: Held) -> int:
    asked = InitProducerIdRequest(transactional_id=held.id, transaction_timeout_ms=TIMEOUT_MS)
    code: int = asking.ask(asked, 4).error_code
    return code


def describe(asking: Asker, held: Held) -> int:
    answer = asking.ask(DescribeTransactionsRequest(transactional_ids=[held.id]))
    code: int = answer.transaction_states[0].error_code
    return code


ACTS: dict[str, Callable[[Asker, Held], int]] = {
    "init": init,
    "add": lambda asking, held: add(asking, held, {"t": [0]})["t"][0],
    "produce": lambda asking, held: produce(asking, held, "t", b"x").error_code,
    "pend": lambda asking, held: pend(asking, held, "g", "t", 1, version=5),
    "end": lambda asking, held: end(asking, held, 4).error_code,
    "describe": describe,
}
"""Each with an id of its own, as of the same denials within a minute only the first is an event."""


def test_each_denial_is_audited_and_who_ends_the_producer_of_another(tmp_path: Path) -> None:
    made = Secured(tmp_path)
    admin, owner, stranger = made.key(), made.key("User:owner"), made.key("User:stranger")
    made.allow(
        acl("User:owner", Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "own"),
        acl("User:owner", Operation.WRITE, ResourceType.TOPIC, "t"),
        acl("User:stranger", Operation.ALL, ResourceType.TOPIC, "t"),
        acl("User:stranger", Operation.ALL, ResourceType.GROUP, "g"),
    )
    with kafka_gateway(tmp_path, authentication_methods="api-key") as gateway:
        gateway.running.client.headers.update(bearer(admin))
        gateway.create_topic("t")
        with asker(gateway.port) as asking:
            asking.key(stranger)
            for name, act in ACTS.items():
                assert act(asking, Held(name, 7, 0)) == DENIED
        with asker(gateway.port) as asking, asker(gateway.port) as other:
            asking.key(owner)
            other.key(admin)
            for _ in range(2):  # its own producers come and go
                held = begin(asking, "own")
            assert produce(asking, held, "t", b"lost").error_code == ErrorCode.NONE
            begin(other, "own")
            assert produce(asking, held, "t", b"x", sequence=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        denials = wait_for_audit(tmp_path, "kind = 'denial' and principal = 'User:stranger'", len(ACTS))
        (change,) = wait_for_audit(tmp_path, "kind = 'change' and resource_type = 'TRANSACTIONAL_ID'")
    shown = short(denials, "resource_name", "resource_type", "operation")
    operations = dict.fromkeys(ACTS, "WRITE") | {"describe": "DESCRIBE"}
    assert shown == [(name, "TRANSACTIONAL_ID", each) for name, each in operations.items()]
    assert (change["principal"], change["operation"], change["resource_name"]) == (
        ADMIN,
        "InitProducerId",
        "own",
    )
    assert '"fenced":"User:owner"' in change["event"]
    assert len(audit_rows(tmp_path, "resource_type = 'TRANSACTIONAL_ID'")) == len(ACTS) + 1
