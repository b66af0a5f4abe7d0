"""A consumer in a process of its own, with nothing but HTTP: notes what it has processed, then commits.

python -m tests.kit.group_reader URL GROUP NAME TOPIC FILE (manual|auto)

It polls for ever, through restarts of the gateway; an instance that is gone it creates again.
"""

import os
import sys
from typing import Any

import httpx

from log_tables.clock import SystemClock
from tests.kit.run_credential import inherited_headers

AGAIN_S = 0.02


class Reader:
    def __init__(self, url: str, group: str, name: str, topic: str, file: str, auto_commit: bool) -> None:
        self._client = httpx.Client(base_url=url, timeout=10, headers=inherited_headers())
        self._group, self._name, self._topic, self._auto_commit = group, name, topic, auto_commit
        self._path = f"/consumers/{group}/instances/{name}"
        self._file = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._clock = SystemClock()

    def run(self) -> None:
        self._join()
        while True:
            records = self._call("GET", f"{self._path}/records?timeout=200")
            if records is None:
                continue
            noted = "".join(f"{record['partition']} {record['offset']}\n" for record in records)
            os.write(self._file, noted.encode())
            if records and not self._auto_commit:
                self._commit(records)

    def _commit(self, records: list[dict[str, Any]]) -> None:
        last = {record["partition"]: record["offset"] for record in records}
        offsets = [{"topic": self._topic, "partition": p, "offset": offset} for p, offset in last.items()]
        self._call("POST", f"{self._path}/offsets", {"offsets": offsets})

    def _join(self) -> None:
        config = {"auto.offset.reset": "earliest", "session.timeout.ms": 1_500, "format": "json"}
        config |= {"auto.commit.enable": self._auto_commit, "auto.commit.interval.ms": 50}
        self._call("POST", f"/consumers/{self._group}", {"name": self._name, **config})
        self._call("POST", f"{self._path}/subscription", {"topics": [self._topic]})

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer; None for one that says no. Waits while nobody answers."""
        while True:
            try:
                answer = self._client.request(method, path, json=body)
            except httpx.TransportError:
                self._clock.pause(AGAIN_S)
                continue
            if answer.is_success:
                return answer.json() if answer.content else None
            code = answer.json()["error_code"]
            if code == 40403 and not path.startswith(f"/consumers/{self._group}?"):
                self._join()
                return None
            if code in (40902, 40913):
                return None
            assert code in (50003, 50303, 50304), answer.text
            self._clock.pause(AGAIN_S)


if __name__ == "__main__":
    _url, _group, _member, _topic, _notes, _mode = sys.argv[1:]
    Reader(_url, _group, _member, _topic, _notes, _mode == "auto").run()
