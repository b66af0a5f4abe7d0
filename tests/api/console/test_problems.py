"""The problems of a cluster, and who hears of them."""

import asyncio
from pathlib import Path

import pytest

from api.console.cluster_index import ClusterState, GroupLag, PartitionState, TopicState
from api.console.pages.overview import FILES_MANY, RUN_OLD_S, SHOWN_MAX, of_groups, of_maintenance, of_topics
from coordinator.groups.state.group import Group
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.run_log import JobRun, record_runs
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.sql.lag import Lag
from tests.kit.secured import Secured, acl, bearer
from tests.kit.served import served

NOW_MS = 1_700_000_000_000


def topic(name: str, files: int = 0, failed: str = "") -> TopicState:
    segments = (None,) * files
    partitions = {0: PartitionState(0, files, segments)}  # type: ignore[arg-type]  # they are counted alone
    return TopicState(name, name, False, partitions, 1, files, files, 0.0, 0.0, 0, failed)


def look(*topics: TopicState, groups: dict[str, float] | None = None) -> ClusterState:
    """A look at topics, and at groups without members that are so many seconds behind."""
    lags = {name: [GroupLag(name, "t", Lag(9, seconds, 9), 1)] for name, seconds in (groups or {}).items()}
    named = {each.name: each for each in topics}
    return ClusterState(NOW_MS, named, {name: Group(name) for name in lags}, {}, lags)


def row(run: str = "r", topic: str = "t", error: str = "", age_s: float = 0.0) -> JobRun:
    started_ms = int(NOW_MS - age_s * 1000)
    return JobRun(run=run, started_ms=started_ms, job="retention", topic=topic, partition=0, error=error)


def test_a_sound_cluster_has_none() -> None:
    seen = look(topic("t", files=3), groups={"g": 1.0})
    assert [*of_topics(seen), *of_groups(seen), *of_maintenance([row()], seen)] == []
    assert of_maintenance([], seen) == []


def test_topics_that_fail_or_have_very_many_files_are_named() -> None:
    found = of_topics(look(topic("a", failed="broken"), topic("b", FILES_MANY + 1), topic("c", FILES_MANY)))
    assert [(each.level, each.what) for each in found] == [
        ("bad", "Topic a cannot be read."),
        ("warn", f"Topic b is stored in partitions of more than {FILES_MANY:,} files."),
    ]


def test_groups_that_nobody_works_for_are_named_some_of_them() -> None:
    names = [f"g{number}" for number in range(SHOWN_MAX + 2)]
    (found,) = of_groups(look(groups={**dict.fromkeys(names, 61.0), "new": 5.0}))
    assert found.what == "Groups g0, g1, g2, g3, g4 and 2 more are behind, without members."


def test_only_the_errors_of_the_last_run_count() -> None:
    rows = [row("last"), row("last", error="no room"), row("before", error="no room")]
    assert [each.what for each in of_maintenance(rows, look(topic("t")))] == [
        "Maintenance failed at t-0: retention."
    ]


@pytest.mark.parametrize("rows", [[], [row(age_s=RUN_OLD_S + 1)]])
def test_jobs_that_do_not_run_are_missed_where_there_is_work(rows: list[JobRun]) -> None:
    assert of_maintenance(rows, look(topic("t", FILES_MANY - 1))) == []
    (found,) = of_maintenance(rows, look(topic("t", FILES_MANY + 1)))
    assert found.level == "warn"


def test_an_operator_hears_of_no_problem_of_a_hidden_topic(tmp_path: Path) -> None:
    root = Secured(tmp_path)
    root.allow(acl("User:operator", Operation.DESCRIBE, ResourceType.CLUSTER))
    admin, operator = root.key(), root.key("User:operator")
    create_topic(root.cluster, "secret", 1)
    record_runs(root.cluster, [row(topic="secret", error="no room")])

    async def pages() -> list[str]:
        async with served(tmp_path, authentication_methods=("api-key",)) as here:
            return [
                (await here.client.get("/console", headers=bearer(key))).text for key in (admin, operator)
            ]

    of_admin, of_operator = asyncio.run(pages())
    assert "Maintenance failed at secret-0" in of_admin
    assert "Gateways" in of_operator
    assert "Maintenance failed" not in of_operator


def test_an_open_gateway_of_a_cluster_that_has_rules_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def shown() -> str:
        async with served(tmp_path, authentication_methods=()) as here:
            page: str = (await here.client.get("/console")).text
            return page

    assert "authenticates nobody" not in asyncio.run(shown())
    assert "authenticates nobody" not in caplog.text
    Secured(tmp_path)  # it has a super user from now on
    assert "This gateway authenticates nobody" in asyncio.run(shown())
    assert "this gateway authenticates nobody: whoever reaches 127.0.0.1 may do everything" in caplog.text
