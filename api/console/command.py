"""The commands and programs that read what a page of messages or of a group shows, to be copied.

Names and texts of others are in them, so each is quoted: who pastes one runs nothing else.
"""

import json
import shlex
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from api.media import Format


class RecordRange(NamedTuple):
    """Partitions of a topic, from the offset `first` on in the first of them, which has `in_first` of the
    `records`, and the keys and the text that are looked for.

    `not_text` names those of key, value and header that are not UTF-8 in all these records; None says that
    it is not known, as not all bytes were read.
    """

    topic: str
    partitions: Sequence[int]
    first: int
    records: int
    in_first: int
    keys: tuple[bytes, ...]
    text: str
    is_json: bool
    not_text: Sequence[str] | None


def commands(url: str, root: str, shown: RecordRange) -> list[tuple[str, str]]:
    """Each with its name."""
    return [
        ("curl", _curl(url.rstrip("/"), shown)),
        ("Python", _python(url.rstrip("/"), shown)),
        ("lakelog consume", _consume(url.rstrip("/"), shown)),
        ("lakelog sql", _sql(root, shown)),
    ]


def group_commands(group: str) -> list[tuple[str, str]]:
    """The commands that show the lag of a group, each with its name."""
    query = (
        'SELECT topic, "partition", "offset", log_end_offset, lag FROM consumer_lag '  # noqa: S608 (as below)
        f'WHERE "group" = {_literal(group)}'
    )
    return [
        ("lakelog sql", shlex.join(["lakelog", "sql", query])),
        ("lakelog group lag", shlex.join(["lakelog", "group", "lag", "--", group])),
    ]


def _curl(url: str, shown: RecordRange) -> str:
    form = Format.JSON if shown.is_json else Format.BINARY
    path = f"/topics/{quote(shown.topic)}/partitions/{shown.partitions[0]}/records?offset={shown.first}"
    return shlex.join(["curl", "-H", f"Accept: {form.value}", url + path])


def _python(url: str, shown: RecordRange) -> str:
    lines = [
        "from lakelog import Client",
        "",
        f"with Client({url!r}) as client:",
        f"    for record in client.read({shown.topic!r}, {shown.partitions[0]}, {shown.first}):",
    ]
    tests = []
    if shown.keys:
        tests.append(f"record.key in {shown.keys!r}")
    if shown.text:
        tests.append(f"any({shown.text.encode()!r} in (part or b'') for part in (record.key, record.value))")
    indent = "        "
    if tests:
        lines.append(f"{indent}if {' and '.join(tests)}:")
        indent += "    "
    return "\n".join([*lines, f"{indent}print(record.offset, record.key, record.value)"])


def _consume(url: str, shown: RecordRange) -> str:
    words = ["lakelog", "consume", shown.topic, "--partition", str(shown.partitions[0])]
    words += ["--from", str(shown.first), "--max", str(max(1, shown.in_first))]
    if shown.not_text is None:  # --json would end at bytes that are no text
        words += ["--format", r"%p %o %T %k %s\n"]
    else:
        words.append("--json")
        words += [word for part in shown.not_text for word in (f"--{part}-format", "base64")]
    return shlex.join([*words, "--url", url])


def _sql(root: str, shown: RecordRange) -> str:
    tests = [f"partition IN ({', '.join(map(str, shown.partitions))})"]
    if len(shown.partitions) == 1:
        tests.append(f"offset >= {shown.first}")
    if shown.keys:
        keys = ", ".join(_literal(key.hex()) for key in shown.keys)
        tests.append(f"encode(key, 'hex') IN ({keys})")
    if shown.text:
        text = _literal(shown.text)
        tests.append(f"(strpos(value_text, {text}) > 0 OR strpos(key_text, {text}) > 0)")
    columns = "partition, offset, timestamp, key_text, value_text"
    query = (  # the reader runs it, as themselves
        f"SELECT {columns} FROM {_name(shown.topic)} WHERE {' AND '.join(tests)} "  # noqa: S608
        f"ORDER BY partition, offset LIMIT {max(1, shown.records)}"
    )
    return shlex.join(["lakelog", "sql", *(["--data", root] if root else []), query])


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(topic: str) -> str:
    return json.dumps(topic)  # a name of a topic has no quotes
