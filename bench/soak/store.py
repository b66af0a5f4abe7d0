"""The S3 server of the soak, which is stopped and started again, and the requests that it has answered."""

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from log_tables.store.store import Store, open_store
from tests.kit.support import free_port, s3_server

_LINE = re.compile(r" s3_(\w+) .*? (\d{3}) \S+ \d+ \d+ ")
"""The action and the status in a line of versitygw's access log."""

_ACTIONS = {
    "PutObject": "PUT",
    "UploadPart": "PUT",
    "CopyObject": "COPY",
    "CreateMultipartUpload": "POST",
    "CompleteMultipartUpload": "POST",
    "ListObjects": "LIST",
    "ListObjectsV2": "LIST",
    "GetObject": "GET",
    "HeadObject": "HEAD",
    "HeadBucket": "HEAD",
    "DeleteObject": "DELETE",
    "DeleteObjects": "DELETE",
    "AbortMultipartUpload": "DELETE",
}
"""By the server's name of an action: what it is billed as. Requests to delete and to abort are free on S3."""


class Bucket:
    """versitygw over a directory, with one bucket; it keeps its port."""

    def __init__(self, directory: Path) -> None:
        self._files, self._log, self._port = directory / "s3", directory / "access.log", free_port()
        self._files.mkdir()
        self._stack, self._read_bytes, self._counted = ExitStack(), 0, Counter[str]()

    def __enter__(self) -> Self:
        self._start()
        self.root = f"{self._server.bucket('soak')}/log"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._server = self._stack.enter_context(
            s3_server(self._files, self._port, "--access-log", str(self._log))
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which every program finds it."""
        return {name.upper(): value for name, value in self._server.options.items()}

    def stop(self) -> None:
        """Nothing answers at its port from now on."""
        self._stack.close()

    def start(self) -> None:
        """Start it again; returns when it listens."""
        self._start()

    def open(self) -> Store:
        return open_store(self.root, self._server.options, create=False)

    def requests(self) -> Counter[str]:
        """How many requests it has answered so far, but for 5xx, by what they are billed as."""
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            whole = log.read().rpartition(b"\n")[0]
        self._read_bytes += len(whole)
        self._counted += billed(whole.decode(errors="replace").splitlines())
        return self._counted.copy()


def billed(lines: Iterable[str]) -> Counter[str]:
    """Requests by verb, in lines of an access log. Raises RuntimeError at an action that has no price."""
    found: Counter[str] = Counter()
    for line in lines:
        match = _LINE.search(line)
        if match is None or match[2].startswith("5"):  # its first line, one that was cut off; S3 bills no 5xx
            continue
        if match[1] not in _ACTIONS:
            raise RuntimeError(
                f"the store was asked for {match[1]}; say in {__name__} what that is billed as"
            )
        found[_ACTIONS[match[1]]] += 1
    return found
