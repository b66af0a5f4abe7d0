"""A gateway for Kafka's clients, which the tests of a module share, and a connection to it."""

from collections.abc import Iterator

import pytest

from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker


@pytest.fixture(scope="package")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGateway]:
    """For tests that only need topics of their own."""
    with kafka_gateway(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def asking(kafka: KafkaGateway) -> Iterator[Asker]:
    """A client of it."""
    with asker(kafka.port) as made:
        yield made
