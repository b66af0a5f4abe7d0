"""Which texts are places of schemas."""

import pytest

from log_tables.errors import InvalidConfig
from log_tables.schemas.source import check_source, is_url, one_url, topic_of


@pytest.mark.parametrize(
    "text",
    [
        "",
        "files",
        "topic:_schemas",
        "http://127.0.0.1:8081",
        "https://[::1]:8081/",
        "https://registry.example/apis/ccompat/v7",
        "https://registry.example/contexts/:.a:",
    ],
)
def test_a_place_is_taken(text: str) -> None:
    check_source(text)
    assert [bool(topic_of(text)), is_url(text)] == [text.startswith("topic:"), text.startswith("http")]


@pytest.mark.parametrize(
    "text",
    [
        "Files",
        "topic:",
        "topic:..",
        "topic:a/b",
        "topic:__consumer_offsets",
        "topic:__lakelog_x",
        "_schemas",
        "ftp://registry",
        "http://",
        "http://:8081",
        "http://registry:port",
        "http://registry:99999",
        "http://registry:0",
        "https://ann:secret@registry",
        "https://registry?x=1",
        "https://registry#x",
        "https://registry\\@elsewhere",
        "https://registry/a b",
        "https://regis\ntry",
        "https://" + "a" * 3_000,
    ],
)
def test_another_text_is_refused_and_the_error_says_what_is_taken(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is no place of schemas; use topic:NAME"):
        check_source(text)


def test_a_url_has_one_spelling() -> None:
    assert one_url("HTTPS://Registry.Example:8081/Path/") == "https://registry.example:8081/Path"
    assert one_url("http://r") == one_url("http://r/") == "http://r"
