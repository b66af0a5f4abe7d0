"""The audit of a gateway that stops, and cannot ask the one that leads the audit log, or distrusts it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from api.gateway import Gateway
from api.process.audit_duty import AuditDuty
from api.process.server import open_gateway
from coordinator.access.principal import Principal, RequestContext
from ingest.settings import Settings
from lakelog import Client, Credential
from log_tables.cluster.credential import AuthenticationMethod
from log_tables.layout import AUDIT, AUDIT_SPILLS, partition_directory, topic_directory
from tests.kit.audits import audit_rows, short, wait_for_audit
from tests.kit.certificates import Authority
from tests.kit.gateway import NEVER_MS, RunningGateway, running_gateway
from tests.kit.secured import Secured, bearer
from tests.kit.served import served
from tests.kit.support import wait_until

METHODS = (AuthenticationMethod.API_KEY,)
NOWHERE = "http://127.0.0.1:1"
"""Where nothing answers: a gateway whose peer_url is this cannot be asked by others, and lives."""


@asynccontextmanager
async def stopping(root: Path, spill_after_s: float = 30) -> AsyncIterator[tuple[Gateway, AuditDuty]]:
    """A second gateway next to one that leads the audit log and cannot be asked: what it audits is appended
    at its end alone.
    """
    secured = Secured(root)
    head = bearer(secured.key())
    async with served(root, authentication_methods=METHODS, peer_url=NOWHERE) as first:
        made = await first.client.post("/topics", json={"topic_name": "t"}, headers=head)
        made.raise_for_status()
        await asyncio.to_thread(wait_for_audit, root, "operation = 'CreateTopics'")
        settings = Settings(
            data=str(root), authentication_methods=METHODS, leader_timeout_ms=NEVER_MS, linger_ms=0
        )
        second = open_gateway(settings, "http://127.0.0.1:2")
        await second.writer.start()
        await second.brokers.start()
        await second.leadership.start()
        try:
            yield second, AuditDuty(second, last_attempt_s=0.5, spill_after_s=spill_after_s)
        finally:
            await second.leadership.close()
            await second.writer.close()
            await second.brokers.close()
            await second.peers.close()


def spilled_files(root: Path) -> list[Path]:
    return [*root.glob(f"{AUDIT_SPILLS}/*.jsonl")]


def change(gateway: Gateway, *names: str) -> None:
    assert gateway.access.audit is not None
    for name in names:
        context = RequestContext(Principal("User:ann"), "10.0.0.1")
        gateway.access.audit.changed(context, "DeleteTopics", ("TOPIC", name), {})


def test_events_are_appended_past_a_leader_that_cannot_be_asked(tmp_path: Path) -> None:
    async def run() -> None:
        async with stopping(tmp_path) as (second, duty):
            change(second, "a", "b")
            await duty.close()
            await duty.finish()

    asyncio.run(run())
    found = audit_rows(tmp_path, "operation = 'DeleteTopics'")
    assert sorted(short(found, "resource_name", "gateway")) == [
        ("a", "http://127.0.0.1:2"),
        ("b", "http://127.0.0.1:2"),
    ]


def test_events_that_no_store_takes_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, spills = tmp_path / partition_directory(topic_directory(AUDIT), 0), tmp_path / AUDIT_SPILLS

    async def run() -> None:
        async with stopping(tmp_path) as (second, duty):
            log.rename(tmp_path / "away")
            log.write_bytes(b"no directory")
            spills.write_bytes(b"no directory")
            change(second, "a", "b", "c")
            await duty.close()
            await duty.finish()
            log.unlink()
            (tmp_path / "away").rename(log)

    asyncio.run(run())
    said = [record for record in caplog.records if "audit events that are in no record: 3" in record.message]
    assert len(said) == 1
    assert said[0].exc_info is None
    assert "None" not in said[0].message


def test_events_that_the_log_does_not_take_at_the_end_are_in_it_once_when_a_gateway_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / partition_directory(topic_directory(AUDIT), 0)

    async def run() -> None:
        async with stopping(tmp_path) as (second, duty):
            log.rename(tmp_path / "away")
            log.write_bytes(b"no directory")
            change(second, "a", "b", "c")
            await duty.close()
            change(second, "d")  # as the last commit of a gateway is noted
            await duty.finish()
            log.unlink()
            (tmp_path / "away").rename(log)

    asyncio.run(run())
    [said] = [each for each in caplog.records if "audit events that wait in audit/" in each.message]
    assert ": 4;" in said.message
    assert audit_rows(tmp_path, "operation = 'DeleteTopics'") == []
    with running_gateway(tmp_path, authentication_methods="api-key"):
        found = wait_for_audit(tmp_path, "operation = 'DeleteTopics'", 4)
        wait_until(lambda: not spilled_files(tmp_path), "what was spilled is deleted")
    assert sorted(short(found, "resource_name")) == [("a",), ("b",), ("c",), ("d",)]
    assert len(audit_rows(tmp_path, "operation = 'DeleteTopics'")) == 4


def test_events_that_the_log_does_not_take_for_long_are_spilled_and_later_in_it_once(tmp_path: Path) -> None:
    log = tmp_path / partition_directory(topic_directory(AUDIT), 0)

    async def until(done: Callable[[], bool], what: str) -> None:
        await asyncio.to_thread(wait_until, done, what)

    async def run() -> None:
        async with stopping(tmp_path, spill_after_s=0.1) as (second, duty):
            log.rename(tmp_path / "away")
            log.write_bytes(b"no directory")
            change(second, "a", "b")
            duty.start()
            await until(lambda: bool(spilled_files(tmp_path)), "they are spilled")
            assert second.access.audit is not None
            assert second.access.audit.waiting == 0
            log.unlink()
            (tmp_path / "away").rename(log)
            with running_gateway(tmp_path, authentication_methods="api-key"):
                await until(lambda: not spilled_files(tmp_path), "another gateway appends them")
            change(second, "c")
            await duty.close()
            await duty.finish()

    asyncio.run(run())
    found = audit_rows(tmp_path, "operation = 'DeleteTopics'")
    assert sorted(short(found, "resource_name")) == [("a",), ("b",), ("c",)]


def test_gateways_that_do_not_trust_one_another_lose_no_event(tmp_path: Path) -> None:
    """One leads the audit log, and the other stops beside it."""
    root = tmp_path / "root"
    root.mkdir()
    secured = Secured(root)
    credential = Credential.api_key(secured.key())
    gateways: dict[str, RunningGateway] = {}
    with ExitStack() as stack:
        for name in ("leads", "leaves"):
            authority = Authority(tmp_path, name)
            pair = authority.pair(f"of-{name}")
            settings = {
                "ssl_certfile": pair.certfile,
                "ssl_keyfile": pair.keyfile,
                "peer_ca_certs": authority.ca_file,
                "authentication_methods": "api-key",
                "leader_timeout_ms": NEVER_MS,
            }
            gateways[name] = stack.enter_context(running_gateway(root, **settings))
            trusted = authority.trusted()
            with Client(gateways[name].url, credential=credential, ssl_context=trusted) as client:
                client.create_topic(name)
            if name == "leads":
                wait_for_audit(root, "operation = 'CreateTopics'")
        for name in ("leaves", "leads"):
            gateways[name].stop()
    found = audit_rows(root, "operation = 'CreateTopics'")
    assert sorted(short(found, "resource_name", "gateway")) == [
        (name, gateways[name].url) for name in ("leads", "leaves")
    ]
    assert audit_rows(root, "kind = 'loss'") == []
