"""Requests to several gateways, each sent once, and what is known afterwards of what they did."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx

from log_tables.clock import Clock, SystemClock
from tests.kit.consumers import V2
from tests.kit.history import Outcome

CONNECT_S = 2.0
REST_S = 5.0

PERHAPS = frozenset([50002, 50303])
"""The error codes that leave open what was done."""


class Answer(NamedTuple):
    outcome: Outcome
    code: int = 0
    """The error code, 0 where there is none."""
    response: httpx.Response | None = None

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    def json(self) -> Any:
        assert self.response is not None
        return self.response.json()

    @property
    def headers(self) -> Mapping[str, str]:
        assert self.response is not None
        return self.response.headers


class Gateways:
    """The gateways at `urls`, asked in turn if `alternating`, else each until it does not do what is asked.

    Who was silent is left alone for REST_S, as by a load balancer. `refused` counts by code, or kind of
    silence, what was not done at once. One for each thread.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        alternating: bool = False,
        timeout_s: float = 5,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
        self._clients = [httpx.Client(base_url=url, timeout=timeout, transport=transport) for url in urls]
        self._alternating = alternating
        self.clock = clock or SystemClock()
        self._rests_until = [0.0] * len(urls)
        self._next = 0
        self.refused: Counter[str] = Counter()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        may: tuple[int, ...] = (),
    ) -> Answer:
        """Send a request once. A refusal for good whose code is not among `may` fails the test."""
        content = None if body is None else json.dumps(body)
        at = self._next
        try:
            response = self._clients[at].request(
                method, path, content=content, headers={"Content-Type": V2, **headers}
            )
        except httpx.TransportError as error:
            self._rests_until[at] = self.clock.monotonic() + REST_S
            sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            answer = Answer(Outcome.UNKNOWN if sent else Outcome.FAILED)
            return self._refused(type(error).__name__, answer)
        if response.is_success:
            if self._alternating:
                self._move_on()
            return Answer(Outcome.OK, 0, response)
        code = int(response.json()["error_code"])
        assert response.status_code >= 500 or response.status_code == 429 or code in may, response.text
        outcome = Outcome.UNKNOWN if code in PERHAPS else Outcome.FAILED
        return self._refused(str(code), Answer(outcome, code, response))

    def _refused(self, why: str, answer: Answer) -> Answer:
        self.refused[why] += 1
        self._move_on()
        return answer

    def _move_on(self) -> None:
        """To the next that does not rest; to the next, where all do."""
        count, now = len(self._clients), self.clock.monotonic()
        following = [(self._next + step) % count for step in range(1, count + 1)]
        self._next = next((at for at in following if self._rests_until[at] <= now), following[0])
