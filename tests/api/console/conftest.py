"""Fixtures for the tests of the console."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.kit.browser import Visitor, visitor
from tests.kit.gateway import RunningGateway


@pytest.fixture
def someone(browser: Browser, gateway: RunningGateway) -> Iterator[Visitor]:
    """A visitor of the gateway of the test's file."""
    with visitor(browser, gateway.url) as someone:
        yield someone
