"""Failures of background work: logged when they begin and when they are over, counted each time."""

import logging

import pytest

from ingest.periodic_task import FailureLog
from log_tables.errors import StoreUnavailable


@pytest.fixture
def counted() -> list[str]:
    return []


@pytest.fixture
def failures(counted: list[str]) -> FailureLog:
    return FailureLog(counted.append)


def attempt(failures: FailureLog, error: Exception | None, part: str = "") -> None:
    with failures.catch("sweep", part):
        if error is not None:
            raise error


def test_a_failure_that_lasts_is_logged_once_and_counted_each_time(
    failures: FailureLog, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        attempt(failures, StoreUnavailable("the bucket does not answer"))
    assert caplog.messages == ["duty sweep failed; it is tried again: the bucket does not answer"]
    assert counted == ["sweep"] * 3


def test_its_end_is_logged_and_so_is_the_next_one(
    failures: FailureLog, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (StoreUnavailable("first"), None, None, StoreUnavailable("second")):
        attempt(failures, error)
    assert caplog.messages == [
        "duty sweep failed; it is tried again: first",
        "duty sweep works again",
        "duty sweep failed; it is tried again: second",
    ]


def test_another_kind_of_failure_is_logged_too(
    failures: FailureLog, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (StoreUnavailable("first"), OSError("second"), OSError("third"), StoreUnavailable("fourth")):
        attempt(failures, error)
    assert [message.rpartition(" ")[2] for message in caplog.messages] == ["first", "second", "fourth"]


def test_parts_fail_each_for_itself(
    failures: FailureLog, counted: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    for error, part in [
        (OSError("it"), "t-0"),
        (OSError("it"), "t-1"),
        (None, "t-0"),
        (OSError("it"), "t-1"),
    ]:
        attempt(failures, error, part)
    assert caplog.messages == [
        "duty sweep of t-0 failed; it is tried again: it",
        "duty sweep of t-1 failed; it is tried again: it",
        "duty sweep of t-0 works again",
    ]
    assert counted == ["sweep"] * 3


def test_a_bug_is_logged_with_its_place_and_an_error_of_ours_without(
    failures: FailureLog, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (StoreUnavailable("ours"), ZeroDivisionError("a bug")):
        attempt(failures, error)
    assert [record.exc_info is not None for record in caplog.records] == [False, True]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_what_ends_the_process_goes_on(failures: FailureLog, counted: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), failures.catch("sweep"):
        raise KeyboardInterrupt
    assert counted == []
