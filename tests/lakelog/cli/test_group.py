"""`lakelog group` and `lakelog consume --group` against a real gateway: what they print and change."""

import json
import subprocess
import sys
from collections.abc import Iterator
from signal import SIGINT, SIGTERM, Signals
from typing import Any

import pytest

from lakelog import Client, Consumer
from tests.kit.cli import USAGE, Run, lines, printed, wrong
from tests.kit.gateway import RunningGateway
from tests.kit.support import exit_code, wait_until


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url) as running:
        yield running


@pytest.fixture
def filled(gateway: RunningGateway, topic: str) -> str:
    """The topic with five records in each of its two partitions, 0 to 4 s after 1970."""
    rows = [{"value": number, "timestamp": 1_000 * number} for number in range(5)]
    for partition in range(2):
        gateway.client.post(f"/topics/{topic}/partitions/{partition}", json={"records": rows})
    return topic


@pytest.fixture
def group(client: Client, filled: str) -> str:
    """A group named as the topic, which has committed offset 2 of both partitions."""
    client.set_offsets(filled, {(filled, 0): 2, (filled, 1): 2})
    return filled


def committed(client: Client, group: str) -> list[int]:
    return [offset for _, offset in sorted(client.group_offsets(group).items())]


def test_a_group_is_listed_described_and_deleted(run: Run, gateway: RunningGateway, group: str) -> None:
    rows = [line.split() for line in lines(run("group", "list"))]
    assert [group, "EMPTY"] in rows
    shape = {"group": group, "state": "EMPTY", "strategy": "", "protocol_type": ""}
    assert shape in printed(run("group", "list", "--json"))
    with Consumer(gateway.url, group, group, name="me") as consumer:
        consumer.poll(0)
        found = printed(run("group", "describe", group, "--json"))
        partitions = [{"topic": group, "partition": partition} for partition in range(2)]
        [member] = found["members"]
        assert (member["member"], member["partitions"]) == ("me", partitions)
        assert (found["group"], found["state"], found["strategy"]) == (group, "STABLE", "sticky")
        shown = lines(run("group", "describe", group))
        assert ["state", "STABLE"] in [line.split() for line in shown]
        assert shown[-1].split() == ["me", "me", f"{group}:0,", f"{group}:1"]
        wrong(run("group", "delete", group), USAGE, "has members")
    assert lines(run("group", "delete", group)) == [f"deleted group {group}"]
    wrong(run("group", "describe", group), USAGE, group)


def test_a_group_with_members_is_deleted_by_force(run: Run, gateway: RunningGateway, group: str) -> None:
    with Consumer(gateway.url, group, group) as consumer:
        consumer.poll(0)
        assert printed(run("group", "delete", group, "--force", "--json")) == {"deleted": group}
        wrong(run("group", "lag", group), USAGE, group)


def test_a_name_with_a_slash_leads_nowhere_else(
    run: Run, gateway: RunningGateway, client: Client, group: str
) -> None:
    with Consumer(gateway.url, group, group, name="me") as consumer:
        consumer.poll(0)
        wrong(run("group", "delete", f"{group}/instances/me"), USAGE, "no slash")
        wrong(run("consume", group, "--group", ".."), USAGE, "'..'")
        assert len(client.group(group)["members"]) == 1


def test_lag_is_shown_per_partition(run: Run, gateway: RunningGateway, client: Client, group: str) -> None:
    client.set_offsets(group, {(group, 1): 5})
    with Consumer(gateway.url, group, group, name="me") as consumer:
        consumer.poll(0)
        behind, done = printed(run("group", "lag", group, "--json"))
        assert behind.pop("lag_seconds") >= 0
        assert behind.pop("lag_bytes") > 0
        assert behind == {
            "topic": group,
            "partition": 0,
            "committed": 2,
            "log_end_offset": 5,
            "lag": 3,
            "owner": "me",
        }
        assert (done["lag"], done["lag_seconds"], done["lag_bytes"]) == (0, 0, 0)
        heading, first, _ = (line.split() for line in lines(run("group", "lag", group)))
        assert heading[:5] == ["topic", "partition", "committed", "log_end_offset", "lag"]
        assert first[:5] == [group, "0", "2", "5", "3"]
        assert first[-1] == "me"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--to", "earliest"), [0, 0]),
        (("--to", "latest"), [5, 5]),
        (("--to", "3"), [3, 3]),
        (("--to", "0"), [0, 0]),
        (("--to", "99"), [5, 5]),
        (("--to", "1970-01-01T00:00:02.500Z"), [3, 3]),
        (("--to", "2024-01-01"), [5, 5]),
        (("--shift-by", "1"), [3, 3]),
        (("--shift-by", "-1"), [1, 1]),
        (("--shift-by", "-99"), [0, 0]),
        (("--shift-by", "99"), [5, 5]),
        (("--to", "4", "--topic", "T"), [4, 4]),
        (("--to", "4", "--topic", "T:1"), [2, 4]),
        (("--to", "4", "--topic", "T:1,0"), [4, 4]),
        (("--to", "4", "--topic", "T:0", "--topic", "T:1"), [4, 4]),
    ],
)
def test_offsets_are_reset_as_planned(
    run: Run, client: Client, group: str, flags: tuple[str, ...], expected: list[int]
) -> None:
    flags = tuple(flag.replace("T", group) if flag[0] == "T" else flag for flag in flags)
    plan = printed(run("group", "reset-offsets", group, *flags, "--dry-run", "--json"))
    assert committed(client, group) == [2, 2]
    assert (plan["group"], plan["dry_run"]) == (group, True)
    named = sorted(plan["offsets"], key=lambda each: int(each["partition"]))
    changed = [partition for partition in range(2) if len(named) == 2 or partition == 1]
    assert [(each["partition"], each["old"], each["new"]) for each in named] == [
        (partition, 2, expected[partition]) for partition in changed
    ]
    shown = lines(run("group", "reset-offsets", group, *flags))
    assert shown[0].split() == ["topic", "partition", "old", "new"]
    assert len(shown) == 1 + len(named)
    assert committed(client, group) == expected


def test_what_the_log_holds_no_more_is_not_gone_back_to(run: Run, client: Client, group: str) -> None:
    client.delete_records(group, 0, 3)
    for flags in (("--to", "earliest"), ("--to", "1"), ("--shift-by", "-1")):
        plan = printed(run("group", "reset-offsets", group, "--topic", f"{group}:0", *flags, "--json"))
        assert [each["new"] for each in plan["offsets"]] == [3]


def test_a_group_that_is_not_there_is_made_for_topics_that_are_named(
    run: Run, client: Client, filled: str
) -> None:
    wrong(run("group", "reset-offsets", filled, "--to", "latest"), USAGE, filled)
    plan = printed(run("group", "reset-offsets", filled, "--to", "latest", "--topic", filled, "--json"))
    assert plan["offsets"] == [
        {"topic": filled, "partition": partition, "old": None, "new": 5} for partition in range(2)
    ]
    assert committed(client, filled) == [5, 5]


def test_offsets_of_members_are_theirs_unless_forced(
    run: Run, gateway: RunningGateway, client: Client, group: str
) -> None:
    with Consumer(gateway.url, group, group, auto_commit=False) as consumer:
        assert consumer.poll(5_000).num_rows > 0
        arguments = ("group", "reset-offsets", group, "--to", "earliest")
        wrong(run(*arguments), USAGE, "has members")
        assert committed(client, group) == [2, 2]
        lines(run(*arguments, "--dry-run"))
        lines(run(*arguments, "--force"))
        assert committed(client, group) == [0, 0]
        found: list[tuple[int, int]] = []

        def read() -> bool:
            rows = consumer.poll(200).select(["partition", "offset"]).to_pylist()
            found.extend((row["partition"], row["offset"]) for row in rows)
            return {(partition, 0) for partition in range(2)} <= {*found}

        wait_until(read, "the members go on from there")


@pytest.mark.parametrize(
    ("flags", "exit_code", "says"),
    [
        ((), USAGE, "--shift-by"),
        (("--to", "latest", "--shift-by", "1"), USAGE, "one of them"),
        (("--to", "yesterday"), USAGE, "'yesterday'"),
        (("--to", "latest", "--topic", "T:x"), USAGE, "TOPIC:0,1"),
        (("--to", "latest", "--topic", "T:"), USAGE, "TOPIC:0,1"),
        (("--to", "latest", "--topic", "T:7"), USAGE, "partition 7"),
        (("--to", "latest", "--topic", "nowhere"), USAGE, "'nowhere'"),
        (("--shift-by", "1", "--topic", "U:0"), USAGE, "committed nothing"),
    ],
)
def test_a_reset_that_cannot_be_changes_nothing(
    run: Run,
    gateway: RunningGateway,
    client: Client,
    group: str,
    flags: tuple[str, ...],
    exit_code: int,
    says: str,
) -> None:
    other = f"{group}-other"
    if any(flag.startswith("U") for flag in flags):
        gateway.create_topic(other)
    flags = tuple({"T": group, "U": other}.get(flag[0], flag[0]) + flag[1:] for flag in flags)
    wrong(run("group", "reset-offsets", group, *flags), exit_code, says)
    assert committed(client, group) == [2, 2]


def test_consuming_in_a_group_goes_on_where_it_was(run: Run, client: Client, filled: str) -> None:
    consume = ("consume", filled, "--group", filled)
    first = lines(run(*consume, "--max", "3"))
    assert sum(committed(client, filled)) == 3
    rest = lines(run(*consume))
    assert sorted(first + rest) == sorted(2 * list(map(str, range(5))))
    assert committed(client, filled) == [5, 5]
    assert lines(run(*consume)) == []
    assert client.group(filled)["members"] == []


def test_consuming_in_a_group_prints_whole_records_with_json(run: Run, group: str) -> None:
    found = [json.loads(line) for line in lines(run("consume", group, "--group", group, "--json"))]
    expected: list[dict[str, Any]] = [
        {"topic": group, "partition": p, "offset": o, "timestamp": 1_000 * o, "key": None, "value": str(o)}
        for p in range(2)
        for o in range(2, 5)
    ]
    assert sorted(found, key=lambda each: (each["partition"], each["offset"])) == [
        {**each, "headers": []} for each in expected
    ]


def test_a_new_group_begins_where_it_is_told_and_takes_what_it_is_told(
    run: Run, client: Client, filled: str
) -> None:
    latest = ("consume", filled, "--group", f"{filled}-late", "--from", "latest")
    assert lines(run(*latest)) == []
    one = ("consume", filled, "--group", f"{filled}-one", "--partition", "1")
    assert lines(run(*one)) == list(map(str, range(5)))
    assert client.group_offsets(f"{filled}-one") == {(filled, 1): 5}
    wrong(run("consume", filled, "--group", "g", "--from", "3"), USAGE, "'3'")


@pytest.mark.parametrize("end", [SIGINT, SIGTERM], ids=["interrupted", "terminated"])
def test_following_in_a_group_ends_in_order(
    gateway: RunningGateway, client: Client, filled: str, end: Signals
) -> None:
    command = [sys.executable, "-m", "lakelog", "consume", filled, "--group", filled, "--follow"]
    with subprocess.Popen([*command, "--url", gateway.url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = [process.stdout.readline() for _ in range(10)]
        assert sorted(found) == sorted(2 * [f"{number}\n" for number in range(5)])
        gateway.produce(filled, "later", partition=1)
        assert process.stdout.readline() == '"later"\n'
        process.send_signal(end)
        assert exit_code(process) == 0
    assert committed(client, filled) == [5, 6]
    assert client.group(filled)["members"] == []


def test_a_deletion_and_a_reset_are_undone(run: Run, client: Client, group: str) -> None:
    run("group", "reset-offsets", group, "--to", "latest")
    run("group", "delete", group)
    plan = printed(run("group", "undo", group, "--acts", "2", "--dry-run", "--json"))
    assert [act["done"] for act in plan["acts"]] == ["delete", "reset"]
    assert [(each["old"], each["new"]) for each in plan["offsets"]] == [(None, 2), (None, 2)]
    shown = lines(run("group", "undo", group))
    assert shown[1].split()[0] == "delete"
    assert committed(client, group) == [5, 5]
    run("group", "undo", group, "--acts", "3")
    assert committed(client, group) == [2, 2]
    wrong(run("group", "undo", "nobody"), USAGE, "nothing to undo")
