"""The log of gateways that a test has started: standard error, as lines of JSON."""

import json
import re
from typing import Any

import pytest

_OF_LIBRDKAFKA = re.compile(r"%[0-7]\|")
"""The beginning of what a client in this process says, to the same standard error."""


class LogLines:
    """The log since the beginning of the test. The fixture `capfd` must come before the gateway starts."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd, self._text = capfd, ""

    @property
    def text(self) -> str:
        """The whole text so far."""
        self._text += self._capfd.readouterr().err
        return self._text

    def all(self) -> list[dict[str, Any]]:
        """Every line; one that is no object of JSON fails the test."""
        lines = [line for line in self.text.splitlines() if not _OF_LIBRDKAFKA.match(line)]
        found = [json.loads(line) for line in lines]
        assert all(isinstance(each, dict) for each in found)
        return found

    def requests(self, **facts: Any) -> list[dict[str, Any]]:
        """The lines of the access log with these facts."""
        lines = [each for each in self.all() if each["logger"] == "lakelog.access"]
        return [each for each in lines if facts.items() <= each.items()]
