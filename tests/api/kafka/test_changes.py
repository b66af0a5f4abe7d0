"""Every API that changes something × what it can be refused for: each refusal is in the audit.

The requests are made from the messages: each field in turn gets values that make no sense.
"""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.connections.answer_line import errors_in
from api.kafka.handlers import RULES
from api.kafka.protocol.apis import (
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    APIS,
    ELECT_LEADERS,
    METADATA,
    OFFSET_DELETE,
)
from api.kafka.protocol.notation import Message, Struct, fields_of
from coordinator.access.audit import Audit
from log_tables.cluster.acl import Operation
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_requests import request_of
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.secured import Secured

EVERY = 1_000_000
ALTERING = {Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS}
CHANGES = sorted(
    key
    for key, rule in RULES.items()
    # Metadata makes topics where a setting lets it; no election is ever needed, so none is refused.
    if ALTERING & {operation for operation, _ in rule.needs} and key not in (METADATA, ELECT_LEADERS)
)
DENIALS = {each.name for each in ErrorCode if each.name.endswith("_AUTHORIZATION_FAILED")}
TOLD = {"INVALID_PARTITIONS": "INVALID_REQUEST"}
"""What Kafka has a code of its own for."""

OPERATIONS = {OFFSET_DELETE: "DeleteOffsets"}
WRONG: dict[type, list[Any]] = {str: ["", "a b", "x" * 300], int: [-1, 0, 99], bytes: [b"", b"x" * 300]}


def named(api_key: int) -> str:
    return APIS[api_key].name


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def keys(root: Path) -> dict[str, str]:
    secured = Secured(root)
    return {"admin": secured.key(), "nobody": secured.key("User:nobody")}


@pytest.fixture(scope="module")
def served(root: Path, keys: dict[str, str]) -> Iterator[KafkaServed]:
    assert keys
    with kafka_served(root, authentication_methods=("api-key",)) as running:
        yield running


def wrong_values(struct: Struct) -> Iterator[tuple[str, Any]]:
    """The fields of `struct`, and of the first part of each of its arrays, with values for each."""
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        if isinstance(value, list):
            yield field.name, value * 2
            if value and isinstance(value[0], Struct):
                yield from ((f"{field.name}.{name}", wrong) for name, wrong in wrong_values(value[0]))
        elif not isinstance(value, bool):
            kind: Any = str if field.element == "string" else type(value)
            none = [None] if field.nullable is not None and not isinstance(field.element, type) else []
            yield from ((field.name, wrong) for wrong in [*WRONG.get(kind, ()), *none])


def changed(message: Message, path: str, value: Any) -> Message:
    made: Any = deepcopy(message)
    *parts, last = path.split(".")
    at = made
    for part in parts:
        at = getattr(at, part)[0]
    setattr(at, last, value)
    return made  # type: ignore[no-any-return]


def requests_of(api_key: int) -> Iterator[Message]:
    api = APIS[api_key]
    sound = request_of(api.request, "made", "g")
    yield sound
    yield sound  # again: what is there, or is gone
    for path, value in wrong_values(sound):
        yield changed(sound, path, value)


def told_and_noted(
    served: KafkaServed, client: Asker, request: Message
) -> tuple[set[str], list[AuditRecord]]:
    """The errors of the answer, and the events that the request leaves."""
    here = served.gateway
    here.access.audit = audit = Audit(here.clock)
    errors = set(errors_in(client.ask(request)))
    return errors, audit.take(EVERY)


def check(api_key: int, request: Message, errors: set[str], events: list[AuditRecord]) -> None:
    failed = [each for each in events if each.kind is AuditKind.CHANGE and not each.success]
    told = {TOLD.get(each, each) for each in errors - DENIALS}
    noted = {ErrorCode(each.error_code).name for each in failed}
    assert {TOLD.get(each, each) for each in noted} == told, request
    assert {each.operation for each in failed} <= {OPERATIONS.get(api_key, named(api_key))}, request
    places = [(each.resource_type, each.resource_name, each.error_code) for each in failed]
    assert len(places) == len({*places}), request
    assert all(each.principal == "User:admin" for each in failed)


@pytest.mark.parametrize("api_key", CHANGES, ids=named)
def test_what_is_refused_is_audited_as_it_is_told(
    served: KafkaServed, keys: dict[str, str], api_key: int
) -> None:
    refused = set[str]()
    with asker(served.port) as client:
        client.key(keys["admin"])
        for request in requests_of(api_key):
            errors, events = told_and_noted(served, client, request)
            check(api_key, request, errors, events)
            refused |= errors
    assert refused


@pytest.mark.parametrize("api_key", CHANGES, ids=named)
def test_a_denial_is_one_and_no_failed_change(
    served: KafkaServed, keys: dict[str, str], api_key: int
) -> None:
    with asker(served.port) as client:
        client.key(keys["nobody"])
        errors, events = told_and_noted(served, client, request_of(APIS[api_key].request, "made", "g"))
    assert errors
    assert errors <= DENIALS
    assert {each.kind for each in events} == {AuditKind.DENIAL}


def test_a_check_is_in_no_audit(served: KafkaServed, keys: dict[str, str]) -> None:
    checked = 0
    with asker(served.port) as client:
        client.key(keys["admin"])
        for api_key in CHANGES:
            for request in requests_of(api_key):
                if hasattr(request, "validate_only"):
                    request.validate_only = True
                    errors, events = told_and_noted(served, client, request)
                    assert events == [], request
                    checked += bool(errors)
    assert checked


def test_what_a_setting_refuses_is_audited(tmp_path: Path) -> None:
    key = Secured(tmp_path).key()
    off: dict[str, Any] = {"user_administration_enable": False, "authentication_methods": ("api-key",)}
    with kafka_served(tmp_path, **off) as served, asker(served.port) as client:
        client.key(key)
        for api_key in (ALTER_CLIENT_QUOTAS, ALTER_USER_SCRAM_CREDENTIALS):
            for request in requests_of(api_key):
                check(api_key, request, *told_and_noted(served, client, request))
            sound = request_of(APIS[api_key].request, "made", "g")
            assert "POLICY_VIOLATION" in told_and_noted(served, client, sound)[0]
