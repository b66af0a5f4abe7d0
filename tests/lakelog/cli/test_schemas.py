"""Commands that read and write values by the schemas of a registry, whose topic the gateway follows."""

import json
from pathlib import Path
from typing import Any

import pytest

from log_tables.record import Record
from log_tables.schemas.framing import prefixed
from tests.kit.avro_values import written
from tests.kit.cli import FAILED, USAGE, Run, lines, printed, wrong
from tests.kit.gateway import RunningGateway
from tests.kit.proto_values import FLIGHT as PROTO
from tests.kit.registry_records import registers, send_records

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "double"]}],
}
LONGER = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "gate", "type": "int"}]}
ROWS = ['{"carrier":"UA","delay":1.5}', '{"carrier":"AA","delay":null}']
SOURCE = "cli_schemas"


@pytest.fixture(scope="module")
def registry(gateway: RunningGateway) -> str:
    """The source of schemas: a topic with three, one of them in two versions of a subject."""
    gateway.create_topic(SOURCE, 1, cleanup_policy="compact")
    for record in (
        registers("cli-avro-value", 1, 17, json.dumps(FLIGHT)),
        registers("cli-avro-value", 2, 18, json.dumps(LONGER)),
        registers("cli-proto-value", 1, 19, PROTO, schemaType="PROTOBUF"),
        registers("cli-json-value", 1, 20, '{"type": "object"}', schemaType="JSON"),
        registers("keys", 1, 21, '"string"'),
    ):
        send_records(gateway, SOURCE, [record])
    return f"topic:{SOURCE}"


def made(run: Run, topic: str, *configs: str) -> None:
    chosen = [word for config in configs for word in ("--config", config)]
    lines(run("topic", "create", topic, "--partitions", "1", *chosen))


def test_values_are_written_by_a_schema_and_printed_as_json(run: Run, registry: str, tmp_path: Path) -> None:
    made(run, "cli-avro", f"value.columns.schemas={registry}", "value.columns.format=avro")
    (tmp_path / "rows").write_text("\n".join([*ROWS, "null"]))
    lines(run("produce", "cli-avro", str(tmp_path / "rows"), "--format", "lines", "--value-schema", "17"))
    lines(run("produce", "cli-avro", "--value-schema", "cli-avro-value:1", stdin=ROWS[0].encode()))
    assert lines(run("consume", "cli-avro")) == [*ROWS, "NULL", ROWS[0]]
    first = printed(run("consume", "cli-avro", "--json", "--max", "1"))
    assert first["value"] == json.loads(ROWS[0])
    (raw,) = lines(run("consume", "cli-avro", "--value-format", "hex", "--max", "1"))
    assert bytes.fromhex(raw) == prefixed(17, written(FLIGHT, json.loads(ROWS[0])))


@pytest.mark.parametrize(
    ("form", "schema", "row"),
    [("protobuf", "cli-proto-value", '{"id":7,"carrier":"UA"}'), ("json-schema", "20", '{"a":1}')],
)
def test_other_languages_are_written_and_printed(
    run: Run, registry: str, form: str, schema: str, row: str
) -> None:
    topic = f"cli-{form}"
    made(run, topic, f"value.columns.schemas={registry}")
    lines(run("produce", topic, "--value-schema", schema, stdin=row.encode()))
    (found,) = lines(run("consume", topic, "--value-format", form))
    assert json.loads(row).items() <= json.loads(found).items()


def test_keys_have_schemas_too(run: Run, registry: str) -> None:
    made(run, "cli-keys", f"value.columns.schemas={registry}")
    row = b'{"carrier":"UA","delay":null}'
    lines(
        run(
            "produce",
            "cli-keys",
            "--format",
            "ndjson",
            "--key-field",
            "carrier",
            "--key-schema",
            "21",
            stdin=row,
        )
    )
    (found,) = lines(run("consume", "cli-keys", "--key-format", "avro", "--format", "%k %s\\n"))
    assert found == f'"UA" {row.decode()}'


def test_what_cannot_be_written_or_printed_says_why(run: Run, registry: str, gateway: RunningGateway) -> None:
    made(run, "cli-wrong", f"value.columns.schemas={registry}")
    for code, schema, row, why in (
        (USAGE, "17", b'{"carrier":3}', "line 1: /carrier is no text"),
        (USAGE, "17", b"{", "line 1: the value is not JSON"),
        (USAGE, "99", b"{}", f"topic {SOURCE} has no schema 99"),
        (USAGE, "nothing", b"{}", "there is no subject 'nothing'; the subjects are"),
        (USAGE, "cli-avro-value:9", b"{}", "with a version 9"),
    ):
        wrong(run("produce", "cli-wrong", "--value-schema", schema, stdin=row), code, why)
    send_records(gateway, "cli-wrong", [Record(prefixed(77, b""))])
    unknown = run("consume", "cli-wrong", "--value-format", "avro")
    wrong(unknown, USAGE, "schema 77 is not known; use --value-format")
    made(run, "cli-nowhere")
    without = run("produce", "cli-nowhere", "--value-schema", "17", stdin=b"{}")
    wrong(without, USAGE, "set value.columns.schemas to topic:NAME")


def test_columns_are_proposed_and_checked_by_a_schema(run: Run, registry: str) -> None:
    made(run, "cli-propose", f"value.columns.schemas={registry}")
    subject = ("--subject", "cli-avro-value")
    assert printed(run("topic", "infer", "cli-propose", *subject, "--json", "--yes")) == {
        "topic": "cli-propose",
        "subject": "cli-avro-value",
        "version": 2,
        "schema": 18,
        "value.columns": "carrier string, delay double, gate bigint",
        "new": 3,
        "declared": True,
    }
    described = printed(run("topic", "describe", "cli-propose", "--json"))
    assert described["configs"]["value.columns.format"] == "avro"
    assert printed(run("topic", "check-columns", "cli-propose", *subject, "--json"))["fits"]
    made(
        run,
        "cli-avro-2",
        f"value.columns.schemas={registry}",
        "value.columns.format=avro",
        "value.columns=carrier bigint, terminal string",
    )
    checked = run("topic", "check-columns", "cli-avro-2", *subject)
    assert checked.exit_code == FAILED
    assert "/carrier is string, not bigint" in checked.stdout
    assert "NULL: the schema has no such field" in checked.stdout
    assert "schema 18 has 2 fields that no column has: delay, gate" in checked.stdout


def test_a_description_names_the_fields_of_the_newest_schema_that_no_column_has(
    run: Run, registry: str
) -> None:
    lines(run("topic", "alter", "cli-avro", "--config", "value.columns=carrier string"))
    assert lines(run("topic", "describe", "cli-avro"))[-1] == (
        "schema 18 has 2 fields that no column has: delay, gate"
    )
