"""Fixtures for the tests of the clients: a client, a producer, consumers of a topic."""

from collections.abc import Iterator
from typing import Any

import pytest

from lakelog import Client, Consumer, Producer
from tests.kit.consuming import Make
from tests.kit.faces import FACES, Face
from tests.kit.gateway import RunningGateway


@pytest.fixture(scope="session", params=FACES)
def face(request: pytest.FixtureRequest) -> Face:
    """Each test that asks for it holds for both faces of clients and producers."""
    return Face(request.param)


@pytest.fixture
def producer(gateway: RunningGateway) -> Iterator[Producer]:
    with Producer(gateway.url, linger_ms=0) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url) as running:
        yield running


@pytest.fixture
def make(gateway: RunningGateway, topic: str, face: Face) -> Iterator[Make]:
    """Make a consumer of the topic, in the group of the topic's name, that begins at the beginning."""
    made: list[Consumer] = []

    def make(*, url: str = gateway.url, **options: Any) -> Consumer:
        if not {"topics", "pattern", "partitions"} & options.keys():
            options["topics"] = [topic]
        made.append(face.consumer(url, topic, **{"auto_offset_reset": "earliest", **options}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()
