"""Fixtures for the tests of all doors."""

import pytest


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A new group, named after the test."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in request.node.name)
