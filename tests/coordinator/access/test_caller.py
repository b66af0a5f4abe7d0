"""A caller: what it may do and has used is asked of the gateway, and each of its changes is audited once."""

import pytest

from coordinator.access.access import UNCHECKED, Access
from coordinator.access.audit import Audit
from coordinator.access.caller import Caller
from coordinator.access.principal import ANONYMOUS, Principal, RequestContext
from log_tables.clock import ManualClock
from log_tables.cluster.access_record import AccessRules, Quota
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.audit_record import AuditRecord
from log_tables.errors import AuthorizationFailed, QuotaReached, UnknownTopic

ANN = RequestContext(Principal("User:ann"), "127.0.0.1")
CODE = 40401


def caller_of(clock: ManualClock, rules: AccessRules | None = None, is_audited: bool = True) -> Caller:
    """Ann, at a gateway that lets in everybody and audits changes."""
    found = AccessRules() if rules is None else rules
    return Caller(Access(lambda: found, clock, audit=Audit(clock)), ANN, lambda _: CODE, is_audited)


def events_of(asked: Caller) -> list[AuditRecord]:
    assert asked.access.audit is not None
    return asked.access.audit.take(10)


def test_a_change_and_a_failure_are_audited_once_each(clock: ManualClock) -> None:
    asked = caller_of(clock)
    with asked.changing("DeleteTopics", ResourceType.TOPIC, "t", of="ann"):
        assert not asked.has_noted
    with pytest.raises(UnknownTopic), asked.changing("DeleteTopics", ResourceType.TOPIC, "u"):
        raise UnknownTopic("there is no topic 'u'; create it")
    made, failed = events_of(asked)
    assert (made.operation, made.resource_name, made.facts, made.success) == (
        "DeleteTopics",
        "t",
        {"of": "ann"},
        True,
    )
    assert (failed.resource_name, failed.success, failed.error_code) == ("u", False, CODE)
    assert asked.has_noted


def test_failures_are_told_to_a_door_that_asks_for_them(clock: ManualClock) -> None:
    asked = caller_of(clock)
    with asked.noting_failures() as failures:
        asked.note_change("DeleteTopics", ResourceType.TOPIC, "t")
        asked.note_failed("DeleteTopics", ResourceType.TOPIC, "u", CODE)
    asked.note_failed("DeleteTopics", ResourceType.TOPIC, "v", CODE)
    assert failures == {(ResourceType.TOPIC, "u")}


def test_a_denial_and_a_fault_are_no_failed_change(clock: ManualClock) -> None:
    asked = caller_of(clock)
    for error in (AuthorizationFailed("ann may not"), ValueError("a fault of ours")):
        with pytest.raises(type(error)), asked.changing("DeleteTopics", ResourceType.TOPIC, "t"):
            raise error
    assert (events_of(asked), asked.has_noted) == ([], False)


def test_what_another_gateway_forwards_is_audited_there(clock: ManualClock) -> None:
    asked = caller_of(clock, is_audited=False)
    asked.note_change("DeleteGroups", ResourceType.GROUP, "g")
    asked.note_failed("DeleteGroups", ResourceType.GROUP, "g", CODE)
    assert (events_of(asked), asked.audit) == ([], None)


def test_a_change_of_no_partitions_pays_no_debt(clock: ManualClock) -> None:
    asked = caller_of(clock, AccessRules(quotas={"User:ann": Quota(controller_mutation_rate=1.0)}))
    asked.charge_changes(-100)
    asked.charge_changes(4)
    with pytest.raises(QuotaReached):
        asked.charge_changes(1)
    clock.advance(4_000)
    asked.charge_changes(1)


def test_who_is_not_authenticated_is_not_kept(clock: ManualClock) -> None:
    open_to_all = Access(AccessRules, clock)
    for context in (UNCHECKED, RequestContext(ANONYMOUS, "127.0.0.1")):
        asked = Caller(open_to_all, context, lambda _: CODE)
        assert asked.identified is None
        assert asked.may(Operation.DELETE, ResourceType.TOPIC, "t")
