"""A local disk that fails: the error of a put says whether it happened, and how to go on."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log_tables.errors import LakelogError, OutcomeUnknown, PutRefused, StoreUnavailable
from log_tables.store.local import LocalStore


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Let a call of the operating system fail with an error number, as a bad disk does."""

    def breaks(function: str, number: int) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number), "/machine/path")

        monkeypatch.setattr(os, function, fail)

    return breaks


@pytest.mark.parametrize(
    ("function", "number", "said"),
    [
        ("write", errno.ENOSPC, "the disk is full: free room"),
        ("write", errno.EDQUOT, "quota"),
        ("fsync", errno.EIO, "check the disk"),
        ("open", errno.EACCES, "give this user the permission"),
        ("open", errno.EMFILE, "limit of open files"),
        ("link", errno.EOPNOTSUPP, "hard links"),
    ],
)
def test_a_disk_that_refuses_leaves_nothing_and_says_what_to_do(
    local: LocalStore, broken: Callable[[str, int], None], function: str, number: int, said: str
) -> None:
    local.put("a/there", b"x")
    broken(function, number)
    with pytest.raises(PutRefused, match=said) as raised:
        local.put_if_absent("a/b", b"y")
    assert "a/b" in raised.value.message
    assert "/machine" not in raised.value.message


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (errno.EACCES, PutRefused),
        (errno.EPERM, PutRefused),
        (errno.EROFS, PutRefused),
        (errno.EIO, OutcomeUnknown),
        (errno.ETIMEDOUT, OutcomeUnknown),
    ],
)
def test_a_deletion_that_is_forbidden_is_refused_and_another_failure_leaves_it_open(
    local: LocalStore, broken: Callable[[str, int], None], number: int, raised: type[LakelogError]
) -> None:
    local.put("a/there", b"x")
    broken("unlink", number)
    with pytest.raises(raised, match="a/there"):
        local.delete("a/there")
    assert local.get("a/there") == b"x"


def test_a_disk_that_fails_after_the_name_is_there_leaves_the_outcome_open(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("a/there", b"x")
    synced = iter([None, OSError(errno.EIO, "Input/output error")])

    def fsync(_: int) -> None:
        if (error := next(synced)) is not None:
            raise error

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OutcomeUnknown, match="may not be durable"):
        local.put_if_absent("a/b", b"y")
    assert local.get("a/b") == b"y"


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO])
def test_a_link_whose_answer_is_lost_is_recognised(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    link = os.link

    def lost(source: str, target: str) -> None:
        link(source, target)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", lost)
    local.put_if_absent("a", b"x")
    assert local.get("a") == b"x"


def test_unreadable_objects_and_directories_are_typed(
    local: LocalStore, broken: Callable[[str, int], None]
) -> None:
    local.put("a/b", b"x")
    broken("open", errno.EIO)
    broken("scandir", errno.EACCES)
    asks: list[Callable[[], object]] = [
        lambda: local.get("a/b"),
        lambda: local.get_range("a/b", 0, 1),
        lambda: [*local.list("a")],
        lambda: local.list_dirs(""),
    ]
    for ask in asks:
        with pytest.raises(StoreUnavailable, match="cannot be read") as raised:
            ask()
        assert "/machine" not in raised.value.message


def test_errors_name_no_path_of_the_machine(local: LocalStore, tmp_path: Path) -> None:
    local.put("a", b"x")

    def errors() -> Iterator[LakelogError]:
        for ask in (
            lambda: local.get("b"),
            lambda: local.get("../b"),
            lambda: local.put_if_absent("a", b""),
            lambda: local.put("a/b", b""),
            lambda: local.put("n" * 300, b""),
        ):
            with pytest.raises(LakelogError) as raised:
                ask()
            yield raised.value

    for error in errors():
        assert str(tmp_path) not in str(error)
        assert error.__context__ is None or error.__suppress_context__
