"""Errors: every class has its place in the table, and every answer has the one form."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import api.errors
from api.errors import BAD_REQUEST, INTERNAL, STATUS_AND_CODE, status_and_code
from api.kafka.clients.errors import ErrorCode, error_code, group_error_code
from api.process.app import create_app
from api.process.server import open_gateway
from ingest.settings import Settings
from lakelog.client.request import kind_of, refusal
from log_tables import errors
from log_tables.error_codes import ERROR_CODES
from log_tables.errors import LakelogError, error_named, may_be_done

REPEATED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}
"""Kafka's codes that its clients repeat (org.apache.kafka.common.errors.RetriableException)."""


def every_error() -> list[type[LakelogError]]:
    def below(kind: type[LakelogError]) -> Iterator[type[LakelogError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    return [kind for kind in below(LakelogError) if kind.__module__ in (errors.__name__, api.errors.__name__)]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_that_its_code_begins_with(kind: type[LakelogError]) -> None:
    assert kind in STATUS_AND_CODE
    status, code = status_and_code(kind("x"))
    assert str(code).startswith(str(status)) or (status, code) == (503, 50003)


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_an_error_that_the_table_does_not_list_answers_as_the_one_above_it(kind: type[LakelogError]) -> None:
    unlisted = type("Unlisted", (kind,), {})
    below_it = type("BelowIt", (unlisted,), {})
    assert status_and_code(below_it("x")) == status_and_code(unlisted("x")) == status_and_code(kind("x"))


DONE_AFTER: dict[type[LakelogError], bool] = {
    errors.InvalidRequest: False,
    errors.AccessDenied: False,
    errors.NotFound: False,
    errors.Conflict: False,
    errors.Retriable: False,
    errors.OutcomeUnknown: True,
    errors.Damaged: True,
}
"""The kinds, and whether something may have been done after them."""


def test_every_error_says_by_its_type_whether_something_may_have_been_done() -> None:
    """So does the same error at every client: over HTTP, between gateways, and by Kafka's protocol."""
    assert set(DONE_AFTER) == {kind for kind in every_error() if kind.__base__ is LakelogError}
    assert may_be_done(LakelogError("x"))
    assert may_be_done(RuntimeError("x"))
    for kind in every_error()[1:]:
        above = [each for each in DONE_AFTER if issubclass(kind, each)]
        assert [DONE_AFTER[each] for each in above] == [may_be_done(kind("x"))], kind
        status, code = status_and_code(kind("x"))
        over_http = refusal(httpx.Response(status, json={"error_code": code, "message": "x"}))
        of_a_peer = error_named(kind.code, "x", {})
        assert isinstance(of_a_peer, kind)
        if issubclass(kind, errors.ObjectMissing | errors.AlreadyExists):
            continue  # they are internal errors, of which a client knows nothing
        for told in (over_http, of_a_peer):
            assert may_be_done(told) == may_be_done(kind("x")), (kind, told)
            assert isinstance(told, errors.Retriable) == issubclass(kind, errors.Retriable), (kind, told)
        if issubclass(kind, errors.GroupMaxSizeReached | errors.PartitionsMaxReached):
            continue  # as Kafka's brokers, the gateway says that a repeat is of no use
        if issubclass(kind, errors.Retriable | errors.OutcomeUnknown):
            assert {error_code(kind("x")), group_error_code(kind("x"))} <= REPEATED, kind


def test_a_client_knows_every_code_that_a_gateway_answers() -> None:
    """A code leads to its class, or to the first class that shares it."""
    for kind, code in ERROR_CODES.items():
        found = kind_of(code)
        assert ERROR_CODES[found] == code or (found, code) == (LakelogError, 50002), kind
    for kind, (status, code) in STATUS_AND_CODE.items():
        assert kind_of(code) is not LakelogError or status == 500, kind
    assert kind_of(40311) is errors.ProducerTaken
    assert (kind_of(50003), kind_of(50304)) == (errors.Retriable, errors.NotLeader)
    assert (kind_of(418), kind_of(40999), kind_of(50399)) == (
        errors.InvalidRequest,
        errors.Conflict,
        LakelogError,
    )


def test_what_fails_after_it_was_begun_is_not_undone() -> None:
    said = pytest.raises(errors.OutcomeUnknown, match=r"the topic is deleted, and then: away; look before")
    with said, errors.begun("the topic is deleted"):
        raise errors.StoreUnavailable("away")
    with pytest.raises(errors.UnknownTopic), errors.begun("nothing"):
        raise errors.UnknownTopic("which")


def test_no_two_conflicts_share_a_code() -> None:
    # The REST Proxy has one code for all that cannot be created; the store's are never shown.
    general = {BAD_REQUEST[1], INTERNAL[1], STATUS_AND_CODE[errors.Conflict][1]}
    codes = [status_and_code(kind("x"))[1] for kind in every_error() if issubclass(kind, errors.Conflict)]
    own = [code for code in codes if code not in general]
    assert len(own) >= 9
    assert sorted(own) == sorted(set(own))


DAMAGED = errors.ForeignCommit("version 7 was made by another tool: DELETE", version=7, operation="DELETE")


Get = Callable[[str], httpx.Response]


@pytest.fixture
def get(tmp_path: Path) -> Get:
    """Asks a real application with one more route, /raise/{which}, that raises what a test names."""
    root = tmp_path
    app = create_app(open_gateway(Settings(data=str(root)), "http://test"))
    raised = {
        "gap": errors.SequenceGap("sequence 9 came, 5 was expected; send that one", expected=5),
        "full": errors.BufferFull("the buffer is full; wait", retry_after_s=1.2),
        "range": errors.OffsetOutOfRange("out of range", log_start_offset=3, high_watermark=8),
        "damaged": DAMAGED,
        "missing": errors.ObjectMissing(f"{root}/topics/x/partition=0 is not there"),
        "bug": RuntimeError(f"cannot open {root}/secret"),
    }

    @app.get("/raise/{which}")
    async def _raise(which: str) -> None:
        raise raised[which]

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(path)

    return lambda path: asyncio.run(ask(path))


def test_a_sequence_gap_says_in_a_header_what_was_expected(get: Get) -> None:
    answer = get("/raise/gap")
    assert answer.status_code == 409
    assert answer.headers["Producer-Expected-Seq"] == "5"
    assert answer.json() == {
        "error_code": 40910,
        "message": "sequence 9 came, 5 was expected; send that one",
        "expected": 5,
    }


def test_a_full_buffer_says_how_many_seconds_to_wait(get: Get) -> None:
    answer = get("/raise/full")
    assert (answer.status_code, answer.json()["error_code"]) == (429, 42901)
    assert answer.headers["Retry-After"] == "2"


def test_an_offset_out_of_range_says_which_offsets_there_are(get: Get) -> None:
    answer = get("/raise/range")
    assert answer.status_code == 416
    assert answer.json() == {
        "error_code": 41601,
        "message": "out of range",
        "log_start_offset": 3,
        "high_watermark": 8,
    }


def test_damage_names_the_version_and_the_operation(get: Get) -> None:
    answer = get("/raise/damaged")
    assert answer.status_code == 500
    assert answer.json() == {
        "error_code": 50002,
        "message": DAMAGED.message,
        "version": 7,
        "operation": "DELETE",
    }


@pytest.mark.parametrize("which", ["missing", "bug"])
def test_an_internal_error_shows_a_reference_and_the_log_has_the_rest(
    get: Get, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = get(f"/raise/{which}")
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50002)
    message = answer.json()["message"]
    reference = message.removeprefix("internal error ").removesuffix(": see the gateway's log")
    assert len(reference) == 12, message
    logged = [record for record in caplog.records if reference in record.getMessage()]
    assert len(logged) == 1
    assert logged[0].exc_info
    assert f"GET /raise/{which} of somebody" in logged[0].getMessage()


def test_failed_requests_are_counted_by_their_code(get: Get) -> None:
    get("/raise/gap")
    assert 'lakelog_request_errors_total{error_code="40910"}' in get("/metrics").text
