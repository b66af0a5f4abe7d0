"""Fixtures for the tests of the command."""

from pathlib import Path

import pytest

from tests.kit.cli import run
from tests.kit.gateway import running_gateway

__all__ = ["root", "run"]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a stopped gateway with one topic in it."""
    data = tmp_path_factory.mktemp("cli")
    with running_gateway(data, linger_ms=0) as gateway:
        gateway.create_topic("sales", 2)
        for number in range(6):
            gateway.produce("sales", {"amount": number}, partition=number % 2)
    return data
