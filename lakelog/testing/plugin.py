"""The plugin of pytest, which finds it by the entry point `pytest11`. It imports nothing that takes long."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lakelog.testing import RunningGateway

_NAME_MAX = 200
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@pytest.fixture(scope="session")
def _lakelog_process() -> "Iterator[RunningGateway]":
    """A gateway of all tests of the session; with pytest-xdist, of those of a process."""
    from lakelog.testing import gateway

    with gateway() as running:
        yield running


@pytest.fixture
def lakelog_gateway(_lakelog_process: "RunningGateway") -> "Iterator[RunningGateway]":
    """A gateway in memory, which all tests share: give topics and groups names of their own. Faults that a
    test sets end with the test.
    """
    yield _lakelog_process
    _lakelog_process.heal()


@pytest.fixture
def lakelog_topic(lakelog_gateway: "RunningGateway", request: pytest.FixtureRequest) -> str:
    """The name of a new topic of one partition, after that of the test."""
    from lakelog import Client
    from log_tables.clock import SystemClock

    plain = _NOT_IN_NAMES.sub("-", request.node.name)[:_NAME_MAX]
    name = f"{plain}-{SystemClock().random_hex(4)}"
    with Client(lakelog_gateway.url) as client:
        client.create_topic(name, 1)
    return name
