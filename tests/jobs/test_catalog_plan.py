"""The plan of a sync, and the names of tables: pure."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.catalog.entry import DIGEST, Entry, made_entry, sql_type
from jobs.catalog.names import table_name, topic_name
from jobs.catalog.plan import Act, Found, plan
from log_tables.columns.declaration import parse
from log_tables.errors import InvalidArgument
from log_tables.layout import PROPERTY_CLUSTER
from log_tables.record import delta_schema

OURS, THEIRS = "cluster-1", "cluster-2"
NAMES = st.text(st.sampled_from("ab0_.-AZ"), min_size=1, max_size=12)


def entry(topic: str, topic_id: str = "id-1", cluster_id: str = OURS, facts: str = "2 partitions") -> Entry:
    return made_entry(topic, topic_id, f"file:///root/topics/{topic}", delta_schema(True), cluster_id, facts)


def found(made: Entry) -> Found:
    return Found(made.name, made.properties)


@pytest.mark.parametrize(
    ("topic", "table"),
    [
        ("flights", "flights"),
        ("order_items_2", "order_items_2"),
        ("shop.orders", "shop__orders"),
        ("shop.orders-eu", "shop__orders___eu"),
        ("Orders", "____xorders"),
        ("a..b", "a____d__b"),
    ],
)
def test_a_name_is_what_the_document_says(topic: str, table: str) -> None:
    assert table_name(topic) == table


@given(NAMES, NAMES)
def test_a_name_says_its_topic_and_no_two_topics_share_one(topic: str, other: str) -> None:
    assert topic_name(table_name(topic)) == topic
    assert (table_name(topic) == table_name(other)) == (topic == other)
    assert table_name(topic) == table_name(topic).lower()


@pytest.mark.parametrize("name", ["____q", "Orders", "a____", "a_____b"])
def test_a_name_that_no_topic_has_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="no name of a topic's table"):
        topic_name(name)


def test_what_is_as_it_should_be_is_left_alone() -> None:
    made = [entry("a"), entry("b.c")]
    assert plan(made, map(found, made), OURS) == []


def test_tables_are_made_replaced_and_removed() -> None:
    steps = plan([entry("new"), entry("again", "id-2")], map(found, [entry("again"), entry("gone")]), OURS)
    assert [(each.act, each.topic) for each in steps] == [
        (Act.DROP, "gone"),
        (Act.REPLACE, "again"),
        (Act.CREATE, "new"),
    ]


def test_a_table_of_another_cluster_or_program_is_never_touched() -> None:
    there = [found(entry("a", cluster_id=THEIRS)), Found("B", {}), found(entry("gone", cluster_id=THEIRS))]
    steps = plan([entry("a"), entry("b")], there, OURS)
    assert [(each.act, each.name) for each in steps] == [(Act.SKIP, "a"), (Act.SKIP, "B")]
    assert f"cluster {THEIRS} has a table" in steps[0].why
    assert "another program has a table" in steps[1].why


def test_a_topic_that_could_not_be_read_keeps_its_table() -> None:
    assert plan([], [found(entry("a.b"))], OURS, kept={"a__b"}) == []


def test_a_name_that_is_too_long_is_named_and_skipped() -> None:
    [step] = plan([entry("A" * 100)], [], OURS)
    assert step.act is Act.SKIP
    assert "600 characters" in step.why


def test_an_entry_changes_with_what_it_says_alone() -> None:
    assert entry("a").digest == entry("a").digest
    assert entry("a").digest != entry("a", facts="3 partitions").digest
    assert entry("a").properties[PROPERTY_CLUSTER] == OURS
    assert len(entry("a").properties[DIGEST]) == 64


def test_types_are_those_of_sql() -> None:
    declared = parse("n long, d decimal(10,2), t array<string>, w struct<`first-name`: string>")
    fields = json.loads(delta_schema(True, declared.fields()))["fields"]
    types = {each["name"]: sql_type(each["type"]) for each in fields}
    assert types["partition"] == "int"
    assert types["headers"] == "array<struct<key:string,value:binary>>"
    assert (types["n"], types["d"], types["t"]) == ("bigint", "decimal(10,2)", "array<string>")
    assert types["w"] == "struct<first_name:string>"
