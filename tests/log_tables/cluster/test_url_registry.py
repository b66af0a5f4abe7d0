"""Schemas of a registry that is asked over HTTP, however it behaves, and what stays under the root."""

import json
import logging
import pickle
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import Unreachable
from log_tables.limits import LOOK_UPS_BURST, REGISTRY_ANSWER_MAX_BYTES
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.schemas.registry import Registered, Registry
from log_tables.schemas.registry_client import RegistryAccess
from log_tables.schemas.schema import Schema, SchemaKind
from log_tables.store.store import Store, open_store
from log_tables.testing import Fault, FaultyStore, refused, unavailable
from tests.kit.certificates import Authority
from tests.kit.schema_registry import SchemaRegistry, answers, drips, endless, schema_registry, seconds

INT, LONG = Schema(SchemaKind.AVRO, '"int"'), Schema(SchemaKind.AVRO, '"long"')
GUID = "89791762-2336-4186-9674-299b90a802e2"


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        found.register("s-value", 1, INT.text)
        found.register("s-value", 2, LONG.text)
        yield found


@pytest.fixture
def root(tmp_path: Path) -> Store:
    return open_store(tmp_path / "root")


def opened(root: Store, server: SchemaRegistry, clock: ManualClock, **access: object) -> Registry:
    """The registry as a process has it that may ask it."""
    asked = RegistryAccess(server.url, **{"timeout_s": 0.3, **access})  # type: ignore[arg-type]
    cluster = Cluster.open(root, clock, "http://first", registries=[asked])
    found = cluster.schema_sources.registry(server.url)
    assert found is not None
    return found


def unasked(root: Store, server: SchemaRegistry, clock: ManualClock) -> Registry:
    """The registry as a process has it that may ask none."""
    found = Cluster.open(root, clock).schema_sources.registry(server.url)
    assert found is not None
    return found


def test_a_schema_is_asked_for_once_and_is_under_the_root_from_then_on(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    registry = opened(root, server, clock)
    assert registry.known(1) is None
    assert server.asked == []
    registry.look_up([1, 1])
    registry.look_up([1])
    assert registry.known(1) == INT
    assert server.asked == ["/schemas/ids/1"]
    with_none = unasked(root, server, clock)
    with_none.look_up([1, 2])
    assert with_none.known(1) == INT
    assert with_none.known(2) is None
    assert "is none of schema_registries" in str(with_none.reason(2))
    assert server.asked == ["/schemas/ids/1"], "only URLs that are listed are asked"
    assert check(root).problems == []


def test_a_task_in_another_process_reads_the_root_alone(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    asked = RegistryAccess(server.url)
    cluster = Cluster.open(root, clock, registries=[asked])
    cluster.schemas(server.url).look_up([1])
    there = pickle.loads(pickle.dumps(cluster.schema_location(f"{server.url}/"))).open()
    there.look_up([1, 2])
    assert there.known(1) == INT
    assert there.known(2) is None
    assert server.asked == ["/schemas/ids/1"]


def test_a_copy_has_the_schemas(
    root: Store, server: SchemaRegistry, clock: ManualClock, tmp_path: Path
) -> None:
    opened(root, server, clock).look_up([2])
    root.put("schemas/files/3.avsc", b'"int"')
    target = open_store(tmp_path / "copy")
    copy_root(root, target, clock)
    copied = unasked(target, server, clock)
    copied.look_up([2])
    assert copied.known(2) == LONG
    assert target.get("schemas/files/3.avsc") == b'"int"'


def test_an_object_that_is_damaged_is_found_and_serves_nobody(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    opened(root, server, clock).look_up([1])
    [path] = [item.path for item in root.list("schemas/")]
    root.put(path, b'{"kind":"AVRO"')
    root.put("schemas/17.avsc", b'"int"')
    registry = unasked(root, server, clock)
    registry.look_up([1])
    assert registry.known(1) is None
    assert "cannot be read" in str(registry.reason(1))
    assert {each.split(" ")[0] for each in check(root).problems} == {"schemas/17.avsc", path}


def test_references_come_with_their_schema_those_first_that_others_need(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    server.register("common/a.proto", 3, "A", schemaType="PROTOBUF")
    refers = [{"name": "a.proto", "subject": "common/a.proto", "version": 1}]
    server.register("b.proto", 4, "B", schemaType="PROTOBUF", references=refers)
    both = [{"name": "b.proto", "subject": "b.proto", "version": 1}, *refers]
    server.register("c", 5, "C", schemaType="PROTOBUF", references=both)
    lost = [{"name": "d", "subject": "d", "version": 7}]
    server.register("e", 6, "E", schemaType="PROTOBUF", references=lost)
    itself = [{"name": "f", "subject": "f", "version": 1}]
    server.register("f", 7, "F", schemaType="PROTOBUF", references=itself)
    registry = opened(root, server, clock, timeout_s=2.0)
    registry.look_up([5, 6, 7])
    found = registry.known(5)
    assert found == Schema(SchemaKind.PROTOBUF, "C", (("a.proto", "A"), ("b.proto", "B")))
    assert "version 7 of 'd', which is not known" in str(registry.reason(6))
    assert "'f' refers to itself" in str(registry.reason(7))
    read = unasked(root, server, clock)
    read.look_up([5])
    assert read.known(5) == found


def test_a_guid_names_a_schema(root: Store, server: SchemaRegistry, clock: ManualClock) -> None:
    server.by_id[GUID] = {"schema": "{}", "schemaType": "JSON", "guid": GUID.upper()}
    other = GUID.replace("8", "9")
    server.by_id[other] = {"schema": "{}", "schemaType": "JSON", "guid": GUID}
    registry = opened(root, server, clock)
    registry.look_up([GUID, other, "../../x"])
    assert registry.known(GUID) == Schema(SchemaKind.JSON, "{}")
    assert f"with schema {GUID}" in str(registry.reason(other))
    assert "neither a number nor the text of a UUID" in str(registry.reason("../../x"))


@pytest.mark.parametrize("prefix", ["/apis/ccompat/v7", "/contexts/:.a:"])
def test_a_registry_may_be_below_a_path(prefix: str, root: Store, clock: ManualClock) -> None:
    with schema_registry(prefix) as server:
        server.register("a/b c", 1, INT.text)
        registry = opened(root, server, clock)
        registry.look_up([1])
        assert registry.known(1) == INT
        assert registry.registered("a/b c") == Registered("a/b c", 1, 1, SchemaKind.AVRO, INT.text)


def test_subjects_and_versions_are_asked_for(root: Store, server: SchemaRegistry, clock: ManualClock) -> None:
    registry = opened(root, server, clock)
    assert registry.subjects() == ["s-value"]
    assert registry.versions("s-value") == [1, 2]
    latest = registry.registered("s-value")
    assert latest == Registered("s-value", 2, 2, SchemaKind.AVRO, LONG.text)
    assert registry.schema_of(latest) == LONG
    assert registry.find("s-value", INT) == registry.registered("s-value", 1)
    assert registry.find("s-value", Schema(SchemaKind.AVRO, "[]")) is None
    assert registry.registered("none") is None
    assert registry.versions("none") == []
    server.register("x", 3, "x", schemaType="XML")
    with pytest.raises(Unreachable, match="'XML', which is no language of schemas"):
        registry.registered("x")
    with pytest.raises(Unreachable, match="none of schema_registries"):
        unasked(root, server, clock).subjects()


@pytest.mark.parametrize(
    ("access", "authorization"),
    [
        ({"user": "ann", "password": "pass:wörd"}, "Basic YW5uOnBhc3M6d8O2cmQ="),
        ({"token": "t0ken"}, "Bearer t0ken"),
    ],
)
def test_a_credential_is_shown_and_is_in_no_message(
    access: dict[str, str],
    authorization: str,
    root: Store,
    server: SchemaRegistry,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.authorization = authorization
    registry = opened(root, server, clock, **access)
    registry.look_up([1])
    assert registry.known(1) == INT
    wrong = opened(root, server, clock, token="canary")
    wrong.look_up([2])
    assert "answers 401: the credentials in schema_registries do not suffice" in str(wrong.reason(2))
    said = (
        caplog.text
        + str(wrong.reason(2))
        + repr(RegistryAccess(server.url, password="pass:w", token="t0ken"))
    )
    assert not [each for each in ("canary", "pass:w", "t0ken", "YW5u") if each in said]


def test_a_token_in_a_file_may_be_replaced(
    root: Store, server: SchemaRegistry, clock: ManualClock, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    registry = opened(root, server, clock, token_file=str(file))
    server.authorization = "Bearer one"
    registry.look_up([1])
    file.write_text("two")
    server.authorization = "Bearer two"
    registry.look_up([2])
    file.write_bytes(b"no\nheader")
    registry.look_up([3])
    assert "cannot be asked: its credential" in str(registry.reason(3))
    assert registry.known(1) == INT
    assert registry.known(2) == LONG


def test_a_registry_over_tls_is_that_of_its_authority(
    root: Store, clock: ManualClock, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair = authority.pair("registry")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*pair)
    with schema_registry(context=context) as server:
        server.register("s", 1, INT.text)
        stranger = opened(root, server, clock, ca_file=other.ca_file, timeout_s=2.0)
        stranger.look_up([1])
        assert stranger.known(1) is None
        assert "certificate verify failed" in str(stranger.reason(1))
        registry = opened(root, server, clock, ca_file=authority.ca_file, timeout_s=2.0)
        registry.look_up([1])
        assert registry.known(1) == INT


def test_many_that_wait_for_one_schema_ask_once_and_all_have_it(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    registry = opened(root, server, clock, timeout_s=5.0)

    def found(_: int) -> Schema | None:
        registry.look_up([1])
        return registry.known(1)

    with ThreadPoolExecutor(16) as threads:
        assert [*threads.map(found, range(64))] == [INT] * 64
    assert server.asked == ["/schemas/ids/1"]


HTML = b"<html>no registry</html>"


@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        (answers(200, HTML), "answers what no registry does"),
        (answers(200, b"[" * 100_000), "answers what no registry does"),
        (answers(200, b'{"schema": 7}'), "answers what no registry does"),
        (answers(200, b'{"schema": "x", "schemaType": "XML"}'), "no language of schemas"),
        (answers(200, json.dumps({"schema": '"int"', "id": 3}).encode()), "with schema 3"),
        (answers(500, HTML), "answers 500"),
        (answers(302, b"", Location="http://169.254.169.254/"), "leads to 'http://169.254.169.254/'"),
        (answers(503, b"{}"), "too busy, or away"),
        (endless, f"more than {REGISTRY_ANSWER_MAX_BYTES} bytes|not answered within"),
    ],
)
def test_a_registry_that_misbehaves_leaves_ids_unknown_with_a_reason(
    mood: object, reason: str, root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    server.mood = mood  # type: ignore[assignment]
    registry = opened(root, server, clock)
    registry.look_up([1])
    assert registry.known(1) is None
    said = str(registry.reason(1))
    assert any(each in said for each in reason.split("|")), said
    assert registry.counts.failed + registry.counts.unreadable >= 1
    assert [*root.list("schemas/")] == []


def test_a_registry_that_says_404_does_not_have_the_schema(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    registry = opened(root, server, clock)
    registry.look_up([404])
    assert registry.reason(404) == f"{server.url} has no schema 404"
    assert (registry.counts.unknown, registry.counts.failed) == (1, 0)
    server.by_id["404"] = {"schema": INT.text}
    registry.look_up([404])
    assert registry.known(404) is None, "within the second it is not asked again"
    clock.advance(1_000)
    registry.look_up([404])
    assert registry.known(404) == INT
    assert registry.reason(404) is None


def test_a_registry_that_never_finishes_its_head_is_left_in_time_and_then_alone(
    root: Store, server: SchemaRegistry, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()
    server.mood = drips(ended)
    registry = opened(root, server, clock)
    assert 0.2 < seconds(lambda: registry.look_up([1])) < 1.5
    asked = len(server.asked)
    assert seconds(lambda: registry.look_up([2])) < 0.1
    assert len(server.asked) == asked, "while it is away nobody waits for it"
    assert "has not answered within 0.3 s" in str(registry.reason(2))
    ended.set()
    server.mood = lambda _: False
    clock.advance(1_000)
    registry.look_up([2])
    assert registry.known(2) == LONG
    assert registry.reason(1) is None
    warned = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warned) == 1, "the log has a failure once"


def test_a_registry_that_is_away_is_tried_ever_more_seldom_and_what_is_known_serves(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    registry = opened(root, server, clock)
    registry.look_up([1])
    server.mood = answers(503, b"")
    server.asked.clear()
    for second in range(60):
        registry.look_up([1, 1_000 + second])
        clock.advance(1_000)
    tries = [each for each in server.asked if each != "/schemas/ids/1"]
    assert 4 <= len(tries) <= 10
    assert registry.known(1) == INT


def test_a_bounded_number_of_requests_comes_of_ids_that_nobody_knows_and_a_new_one_is_asked_at_once(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    registry = opened(root, server, clock, timeout_s=2.0)
    strangers = range(100_000, 100_008)
    for _ in range(300):
        registry.look_up(strangers)
        clock.advance(100)
    assert len(server.asked) <= LOOK_UPS_BURST + 30
    registry.look_up([*strangers, 2])
    assert registry.known(2) == LONG, "half of a burst is left to new ids"


def test_an_id_that_is_given_to_another_schema_is_noticed_and_the_first_one_counts(
    root: Store, server: SchemaRegistry, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    registry = opened(root, server, clock)
    registry.look_up([1])
    server.by_id["1"] = {"schema": LONG.text}
    registry.look_up([2])
    assert registry.known(1) == INT
    assert registry.known(2) == LONG
    assert registry.counts.changed == 1
    assert "now gives the id 1 to another schema" in caplog.text
    elsewhere = opened(root, server, clock)
    elsewhere.look_up([1])
    assert elsewhere.known(1) == INT, "what is under the root counts for everybody"


def test_a_schema_that_another_process_has_kept_meanwhile_counts(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    kept = b'{"kind":"AVRO","text":"\\"long\\"","references":[]}'
    first = opened(root, server, clock)
    first.look_up([2])
    [path] = [item.path for item in root.list("schemas/")]

    def other_first(handler: object) -> bool:
        root.put(path.replace("2.json", "1.json"), kept)
        return False

    server.mood = other_first
    registry = opened(root, server, clock)
    registry.look_up([1])
    assert registry.known(1) == LONG
    assert registry.counts.changed == 1


def test_a_root_that_cannot_be_written_or_read_keeps_nobody_from_the_registry(
    root: Store, server: SchemaRegistry, clock: ManualClock
) -> None:
    Cluster.open(root, clock)
    away = [Fault(1, unavailable, ("head",), "schemas/"), Fault(1, refused, ("put_if_absent",), "schemas/")]
    registry = opened(FaultyStore(root, away), server, clock)
    registry.look_up([1])
    assert registry.known(1) == INT
    assert [*root.list("schemas/")] == []
