"""Helpers for tests of producers: networks that fail, and the content of a log."""

from collections.abc import Callable
from pathlib import Path

import httpx

from lakelog import Client
from tests.kit.gateway import RunningGateway, start_gateway


def values(client: Client, topic: str, partition: int) -> list[bytes | None]:
    return [record.value for record in client.read(topic, partition)]


def revive(data: Path, port: int) -> RunningGateway:
    return start_gateway(data, "--port", str(port), linger_ms=0)


class Careless(httpx.HTTPTransport):
    """The network, which loses the answers to produce requests that `loses` says."""

    def __init__(self, loses: Callable[[int], bool]) -> None:
        super().__init__()
        self._loses = loses
        self.requests: list[tuple[dict[str, str], bytes]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if request.method == "POST":
            stamp = {name: value for name, value in request.headers.items() if name.startswith("producer-")}
            self.requests.append((stamp, request.read()))
            if self._loses(len(self.requests)):
                answer.close()
                raise httpx.ReadError("the connection was lost", request=request)
        return answer


def every_second(number: int) -> bool:
    return number % 2 == 1


class Refusing(httpx.HTTPTransport):
    """The network, with a gateway at its end that refuses every record whose value begins with `no`."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and b"no" in request.read():
            return httpx.Response(422, json={"error_code": 42206, "message": "no; say yes"})
        return super().handle_request(request)
