"""The options of the source `lakelog`, compared with those of Spark's Kafka source by the same names.

Kafka's behaviour: Spark's "Structured Streaming + Kafka Integration Guide", and its KafkaSourceProvider.
"""

import json
import re
from collections.abc import Mapping

import pytest

from lakelog.spark.options import RootLocation
from lakelog.spark.rows import COLUMNS, spark_schema
from lakelog.spark.source.offsets import EARLIEST, LATEST, Position
from lakelog.spark.source.options import Options, names_table, parse, table_of
from log_tables.errors import InvalidArgument, InvalidRequest

ROOT = {"path": "/data/lakelog"}
SOME = {**ROOT, "subscribe": "t"}


def batch(**options: str) -> Options:
    return parse({**SOME, **options}, streaming=False)


def stream(**options: str) -> Options:
    return parse({**SOME, **options}, streaming=True)


def refused(given: Mapping[str, str], streaming: bool) -> str:
    """The message about options that are wrong."""
    with pytest.raises(InvalidRequest) as caught:
        parse(given, streaming)
    return caught.value.message


def test_defaults_are_those_of_kafkas_source() -> None:
    """Kafka: a batch begins at earliest, a stream at latest; lost data fails; no limits; 15 minutes."""
    assert batch().starting == Position(everywhere=EARLIEST)
    assert stream().starting == Position(everywhere=LATEST)
    for options in (batch(), stream()):
        assert options.ending == Position(everywhere=LATEST)
        assert options.fail_on_data_loss
        assert options.without_match == "error"
        assert options.columns == COLUMNS
        assert options.min_partitions is None
        assert options.max_records_per_partition is None
        assert options.max_offsets_per_trigger is None
        assert options.min_offsets_per_trigger is None
        assert options.max_trigger_delay_ms == 15 * 60 * 1000


def test_names_count_in_any_case() -> None:
    """Kafka: option names are case-insensitive. Spark hands them over in lower case."""
    for spelt in (str.lower, str.upper, str):
        given = {spelt(name): value for name, value in {**SOME, "startingOffsets": "earliest"}.items()}
        assert parse(given, streaming=True).starting == Position(everywhere=EARLIEST)
    given = {spelt("includeHeaders"): "TRUE", **SOME}
    assert parse(given, streaming=False).columns == (*COLUMNS, "headers")


def test_exactly_one_of_subscribe_pattern_and_assign() -> None:
    """Kafka: an error when none or several of the three are given."""
    chosen = {"subscribe": "t", "subscribePattern": "t.*", "assign": '{"t": [0]}'}
    assert "none" in refused(ROOT, streaming=True)
    for left_out in chosen:
        two = {name: text for name, text in chosen.items() if name != left_out}
        message = refused({**ROOT, **two}, streaming=False)
        assert message.endswith("there is " + " and ".join(two))


def test_subscribe_takes_topics_between_commas() -> None:
    """Kafka: a list with commas; blanks around names and empty entries are dropped."""
    assert batch(subscribe=" b , a,,b").topics == ("b", "a")
    for nothing in ("", " , "):
        assert "subscribe is empty" in refused({**ROOT, "subscribe": nothing}, streaming=True)
    assert "'no/topic'" in refused({**ROOT, "subscribe": "a,no/topic"}, streaming=True)


def test_subscribe_pattern_takes_a_regular_expression() -> None:
    """Kafka: a Java regular expression, which must not be blank; blanks around it do not count."""
    options = parse({**ROOT, "subscribePattern": r" orders-\d+ "}, streaming=True)
    assert options.pattern is not None
    assert options.pattern.fullmatch("orders-12")
    assert options.topics == ()
    for nothing in ("", "  "):
        assert "subscribePattern is empty" in refused({**ROOT, "subscribePattern": nothing}, streaming=True)
    assert "subscribePattern='a['" in refused({**ROOT, "subscribePattern": "a["}, streaming=True)


def test_assign_takes_json_of_partitions() -> None:
    """Kafka: `{"topicA": [0, 1], "topicB": [2, 4]}`."""
    options = parse({**ROOT, "assign": '{"b": [4, 2], "a": [0, 0]}'}, streaming=True)
    assert options.assigned == (("a", 0), ("b", 2), ("b", 4))
    assert options.topics == ("a", "b")


@pytest.mark.parametrize("text", ["t", "[0]", "{}", '{"t": []}', '{"t": 0}', '{"t": [-1]}', '{"t": [true]}'])
def test_assign_refuses_what_names_no_partitions(text: str) -> None:
    message = refused({**ROOT, "assign": text}, streaming=True)
    assert message.startswith("assign")
    assert message.endswith('give JSON such as {"orders": [0, 1]}')


def test_offsets_are_earliest_latest_or_json() -> None:
    """Kafka: in the JSON −2 stands for earliest, −1 for latest; words in any case."""
    assert stream(startingOffsets="EARLIEST").starting == Position(everywhere=EARLIEST)
    assert stream(startingOffsets="latest").starting == Position(everywhere=LATEST)
    offsets = {("a", 0): 23, ("a", 1): -2, ("b", 0): -1}
    text = '{"a": {"0": 23, "1": -2}, "b": {"0": -1}}'
    assert stream(startingOffsets=text).starting.offsets == offsets
    assert batch(endingOffsets="latest").ending == Position(everywhere=LATEST)
    assert batch(endingOffsets='{"a": {"0": 23, "1": -1}}').ending.offsets == {("a", 0): 23, ("a", 1): -1}


@pytest.mark.parametrize(
    "text",
    [
        *("", "newest", "23", "[]", '{"t": 23}', '{"t": {"0": 1}', '{"t": {"x": 1}}', '{"t": {"-1": 0}}'),
        *(json.dumps({"t": {"0": wrong}}) for wrong in ("23", -3, 1.5, True, None)),
        *(
            json.dumps({"t": {"0": 1, **told}})
            for told in ({"id": 5}, {"epoch": 5}, {"id": "t", "epoch": "5"})
        ),
    ],
)
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_offsets_refuse_anything_else(option: str, text: str) -> None:
    message = refused({**SOME, option: text}, streaming=False)
    assert message.startswith(option)
    assert "give earliest, latest, or JSON" in message


def test_a_batch_neither_begins_at_latest_nor_ends_at_earliest() -> None:
    """Kafka: an error, for all partitions and for one."""
    for option, word, number in (("startingOffsets", "latest", -1), ("endingOffsets", "earliest", -2)):
        one = json.dumps({"t": {"0": 5, "1": number}})
        for text in (word, one):
            message = refused({**SOME, option: text}, streaming=False)
            assert message.startswith(f"{option}={text!r} is not allowed in a batch query")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "1"),
        ("endingOffsetsByTimestamp", '{"t": {"0": 1}}'),
    ],
)
def test_a_stream_has_no_end(option: str, value: str) -> None:
    """Kafka: ending options are an error in a stream (endingTimestamp it ignores)."""
    assert f"the option {option} is for batch" in refused({**SOME, option: value}, streaming=True)


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_a_batch_has_no_triggers(option: str) -> None:
    """Kafka: ignored with a warning. Here an error (docs/decisions/0013)."""
    assert f"the option {option} is for streaming" in refused({**SOME, option: "10"}, streaming=False)


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_a_timestamp_for_all_comes_before_those_by_partition_and_those_before_offsets(side: str) -> None:
    """Kafka: startingTimestamp > startingOffsetsByTimestamp > startingOffsets, and so for the end."""
    given = {
        f"{side}Timestamp": " 1000 ",
        f"{side}OffsetsByTimestamp": '{"t": {"0": 2000}}',
        f"{side}Offsets": '{"t": {"0": 3}}',
    }

    def position() -> Position:
        options = batch(**given)
        return options.starting if side == "starting" else options.ending

    assert position().everywhere_ms == 1000
    del given[f"{side}Timestamp"]
    assert position().times_ms == {("t", 0): 2000}
    del given[f"{side}OffsetsByTimestamp"]
    assert position().offsets == {("t", 0): 3}


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_timestamps_are_whole_milliseconds(side: str) -> None:
    """Kafka: a long; JSON by partition."""
    for text in ("", "now", "1.5", "-1", str(2**63)):
        assert f"{side}Timestamp={text!r}" in refused({**SOME, f"{side}Timestamp": text}, streaming=False)
    option = f"{side}OffsetsByTimestamp"
    for text in ("1000", '{"t": 1000}', '{"t": {"0": -1}}', '{"t": {"0": "2026-01-01"}}', "earliest"):
        message = refused({**SOME, option: text}, streaming=False)
        assert message.startswith(option)
        assert "milliseconds" in message


def test_the_strategy_is_error_or_latest() -> None:
    """Kafka: startingOffsetsByTimestampStrategy, `error` by default, in any case."""
    option, timed = "startingOffsetsByTimestampStrategy", {"startingTimestamp": "5"}
    assert stream(**timed).without_match == "error"
    assert stream(**timed, **{option: "LATEST"}).without_match == "latest"
    assert stream(**timed, **{option: "error"}).without_match == "error"
    message = refused({**SOME, **timed, option: "earliest"}, streaming=True)
    assert message.startswith(f"{option}='earliest'")
    assert "without a starting timestamp" in refused({**SOME, option: "latest"}, streaming=True)


def test_what_does_not_count_must_be_right_too() -> None:
    given = {**SOME, "startingTimestamp": "5", "startingOffsets": "garbage"}
    assert "startingOffsets='garbage'" in refused(given, streaming=True)


def test_a_partition_has_one_name() -> None:
    for text in ('{"t": {"00": 1}}', '{"t": {"0": 1, "٣": 2}}', '{"a b": {"0": 1}}'):
        with pytest.raises(InvalidRequest):
            parse({**SOME, "startingOffsets": text}, streaming=True)


def test_headers_that_are_not_to_be_there_are_no_column() -> None:
    given = {**SOME, "includeHeaders": "false", "columns": "offset,headers"}
    assert "contradict" in refused(given, streaming=True)


@pytest.mark.parametrize("option", ["failOnDataLoss", "includeHeaders"])
def test_flags_are_true_or_false(option: str) -> None:
    """Kafka: Scala's toBoolean, true or false in any case."""
    for text in ("true", "False", "TRUE"):
        stream(**{option: text})
    for text in ("", "1", "yes"):
        assert f"{option}={text!r}" in refused({**SOME, option: text}, streaming=True)


@pytest.mark.parametrize(
    "option", ["minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger"]
)
def test_numbers_are_above_zero(option: str) -> None:
    """Kafka: whole numbers; minPartitions and maxRecordsPerPartition must be positive."""
    stream(**{option: " 7 "})
    for text in ("", "0", "-1", "1.5", "ten", "1e3", str(2**63)):
        assert f"{option}={text!r}" in refused({**SOME, option: text}, streaming=True)


def test_the_least_of_a_trigger_is_not_above_the_most() -> None:
    """Kafka: minOffsetsPerTrigger above maxOffsetsPerTrigger is an error."""
    stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    given = {**SOME, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}
    assert "minOffsetsPerTrigger=6 is more than maxOffsetsPerTrigger=5" in refused(given, streaming=True)


def test_max_trigger_delay_is_a_time() -> None:
    """Kafka: Spark's time strings; a bare number is milliseconds."""
    for text, delay_ms in {
        "250": 250,
        "250ms": 250,
        "30s": 30_000,
        "15 m": 900_000,
        "2min": 120_000,
        "2H": 7_200_000,
        "1d": 86_400_000,
        "0": 0,
        "500us": 0.5,
    }.items():
        assert stream(minOffsetsPerTrigger="1", maxTriggerDelay=text).max_trigger_delay_ms == delay_ms
    for text in ("", "soon", "-5m", "1.5h", "5 weeks"):
        given = {**SOME, "minOffsetsPerTrigger": "1", "maxTriggerDelay": text}
        assert f"maxTriggerDelay={text!r}" in refused(given, streaming=True)
    assert "minOffsetsPerTrigger" in refused({**SOME, "maxTriggerDelay": "5m"}, streaming=True)


def test_path_is_needed() -> None:
    """Kafka's source needs kafka.bootstrap.servers in the same way."""
    for without in ({}, {"path": ""}, {"path": "  "}):
        assert "the option path is missing" in refused({**without, "subscribe": "t"}, streaming=True)


def test_storage_options_go_to_the_store() -> None:
    location = batch(**{"storage.aws_region": "eu", "STORAGE.AWS_ENDPOINT": "http://s3"}).location
    assert location.root == "/data/lakelog"
    assert dict(location.storage) == {"aws_region": "eu", "aws_endpoint": "http://s3"}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("startingOfsets", "did you mean startingOffsets?"),
        ("topic", "the options are path, subscribe"),
        ("kafka.bootstrap.servers", "the option kafka.bootstrap.servers is about a Kafka broker"),
        ("kafka.group.id", "drop it"),
        ("groupidprefix", "the option groupIdPrefix is about a Kafka broker"),
        ("fetchoffset.numretries", "the option fetchOffset.numRetries"),
    ],
)
def test_unknown_options_are_refused(option: str, said: str) -> None:
    """Kafka: ignored. Here an error, so that a slip of the pen reads from no wrong place (decisions/0013)."""
    for streaming in (True, False):
        assert said in refused({**SOME, option: "1"}, streaming)


def test_columns_prune_and_order_the_rows() -> None:
    assert batch(columns="offset, timestamp").columns == ("offset", "timestamp")
    assert batch(columns="headers,value", includeHeaders="true").columns == ("headers", "value")
    for text, said in {
        "": "at least one column",
        ",": "at least one column",
        "offset,offset": "each once",
    }.items():
        message = refused({**SOME, "columns": text}, streaming=True)
        assert message.startswith("columns")
        assert said in message
    assert "contradict" in refused({**SOME, "columns": "value", "includeHeaders": "true"}, streaming=True)


def test_the_row_schema_is_that_of_kafkas_source() -> None:
    """Kafka: seven columns, `headers` with includeHeaders as the eighth; all may be null."""
    kafkas = (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int"
    )
    headers = ",headers:array<struct<key:string,value:binary>>>"
    assert spark_schema(batch().columns).simpleString() == kafkas + ">"
    with_headers = spark_schema(batch(includeHeaders="true").columns)
    assert with_headers.simpleString() == kafkas + headers
    assert all(field.nullable for field in with_headers)


def test_a_table_is_chosen_alone() -> None:
    """Kafka: its groups are no table."""
    given = {"PATH": "/data/lakelog", "Table": "consumer_lag", "storage.aws_region": "eu"}
    assert names_table(given)
    assert not names_table(SOME)
    assert table_of(given) == (RootLocation("/data/lakelog", (("aws_region", "eu"),)), "consumer_lag")
    for wrong, said in (
        (
            {**given, "Table": "consumer_lags"},
            "'consumer_lags' is none of the tables; there are consumer_offs",
        ),
        ({**given, "subscribe": "t"}, "the option subscribe is about the records of topics"),
        ({**given, "colums": "lag"}, "did you mean columns?"),
        ({"table": "consumer_lag"}, "the option path is missing"),
    ):
        with pytest.raises(InvalidArgument, match=re.escape(said)):
            table_of(wrong)
    assert "the option table is for batch queries" in refused(
        {**ROOT, "table": "consumer_lag"}, streaming=True
    )
