"""Commands that are copied: a shell takes each part of them as it was meant."""

import ast
import shlex

from hypothesis import given
from hypothesis import strategies as st

from api.console.command import RecordRange, commands, group_commands

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@given(TEXT, TEXT)
def test_what_a_record_holds_is_an_argument_and_never_code(key: str, text: str) -> None:
    shown = RecordRange("my-topic", [3], 41, 50, 50, (key.encode(),), text, True, None)
    made = dict(commands("http://127.0.0.1:8082/", "/data/a b", shown))
    words = shlex.split(made["curl"])
    assert words[-1] == "http://127.0.0.1:8082/topics/my-topic/partitions/3/records?offset=41"
    assert shlex.split(made["lakelog sql"])[:4] == ["lakelog", "sql", "--data", "/data/a b"]
    query = shlex.split(made["lakelog sql"])[4]
    assert query.startswith(
        'SELECT partition, offset, timestamp, key_text, value_text FROM "my-topic" WHERE '
    )
    assert query.count("'") % 2 == 0
    strings = {node.value for node in ast.walk(ast.parse(made["Python"])) if isinstance(node, ast.Constant)}
    assert key.encode() in strings
    assert not text or text.encode() in strings
    assert shlex.split(made["lakelog consume"])[:5] == ["lakelog", "consume", "my-topic", "--partition", "3"]


def test_bytes_are_fetched_as_binary() -> None:
    shown = RecordRange("t", [0], 0, 0, 0, (), "", False, [])
    assert "vnd.kafka.binary" in dict(commands("http://h", "", shown))["curl"]


def test_consume_never_ends_at_bytes_that_are_no_text() -> None:
    def consumed(not_text: list[str] | None) -> list[str]:
        shown = RecordRange("t", [0], 7, 9, 3, (), "", False, not_text)
        return shlex.split(dict(commands("http://h", "", shown))["lakelog consume"])[7:-2]

    assert consumed([]) == ["--max", "3", "--json"]
    assert consumed(["key", "header"])[2:] == [
        "--json",
        "--key-format",
        "base64",
        "--header-format",
        "base64",
    ]
    assert consumed(None)[2:] == ["--format", r"%p %o %T %k %s\n"]


@given(TEXT)
def test_the_name_of_a_group_is_an_argument_and_never_code(group: str) -> None:
    made = {name: shlex.split(text) for name, text in group_commands(group)}
    assert made["lakelog group lag"] == ["lakelog", "group", "lag", "--", group]
    assert made["lakelog sql"][:2] == ["lakelog", "sql"]
    [query] = made["lakelog sql"][2:]
    assert query.partition(' WHERE "group" = ')[2] == "'" + group.replace("'", "''") + "'"
