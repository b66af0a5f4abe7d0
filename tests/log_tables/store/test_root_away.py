"""A root whose disk or mount fails while it is opened: it is away, which may pass, and not wrong."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from api.process.server import open_gateway
from ingest.settings import Settings, load_settings
from lakelog.cli.common import FAILED, WRONG, exit_code
from log_tables.errors import InvalidRequest, LakelogError, StoreUnavailable
from log_tables.store.store import open_store

AWAY = [
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.EMFILE,
]
WRONGLY_NAMED = [errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP]
CALLS = ("fsync", "stat", "open")


def failing(monkeypatch: pytest.MonkeyPatch, call: str, number: int, below: Path) -> None:
    """The next call of the operating system on the root, or on any open file, fails."""
    real, left = getattr(os, call), [OSError(number, os.strerror(number))]

    def once(what: Any, *args: Any, **named: Any) -> Any:
        if left and (isinstance(what, int) or Path(os.fsdecode(what)) == below):
            raise left.pop()
        return real(what, *args, **named)

    monkeypatch.setattr(os, call, once)


def raised(root: Path, create: bool = True) -> LakelogError | None:
    try:
        open_store(root, create=create)
    except LakelogError as error:
        return error
    return None


def test_a_disk_that_fails_once_while_a_root_is_opened_is_away(tmp_path: Path) -> None:
    """After exit code 2 a supervisor does not start a gateway again: a person has to change something."""
    open_store(tmp_path / "root")
    for create in (True, False):
        for call in CALLS:
            for number in (*AWAY, *WRONGLY_NAMED):
                with pytest.MonkeyPatch.context() as patch:
                    failing(patch, call, number, tmp_path if call == "open" else tmp_path / "root")
                    error = raised(tmp_path / "root", create)
                if call != "stat" and not create:
                    assert error is None, "a reader makes nothing durable"
                    continue
                expected = StoreUnavailable if number in AWAY else InvalidRequest
                if number == errno.EACCES and call != "stat":
                    assert error is None, "a directory that this user cannot read is not its own"
                    continue
                assert isinstance(error, expected), (call, errno.errorcode[number], error)
                assert exit_code(error) == (FAILED if number in AWAY else WRONG)
                assert os.strerror(number) in error.message


def test_so_is_the_root_of_a_gateway_that_is_there_and_whole(tmp_path: Path) -> None:
    open_gateway(Settings(data=str(tmp_path / "root")), "http://test")
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, "fsync", errno.EIO, tmp_path)
        with pytest.raises(StoreUnavailable, match=r"made durable: Input/output error; check the disk"):
            open_gateway(Settings(data=str(tmp_path / "root")), "http://test")
    open_gateway(Settings(data=str(tmp_path / "root")), "http://test")


def test_so_is_a_file_of_settings_on_a_disk_that_fails(tmp_path: Path) -> None:
    file = tmp_path / "lakelog.toml"
    file.write_text("")
    for number, expected in ((errno.EIO, StoreUnavailable), (errno.EACCES, InvalidRequest)):

        def fail(*_: object, number: int = number, **__: object) -> str:
            raise OSError(number, os.strerror(number))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "read_text", fail)
            with pytest.raises(expected):
                load_settings(str(file))
