"""`lakelog root`: the tables over topics are begun again, in both roots; copies of moments that are past."""

from pathlib import Path

import pytest

from ingest.settings import Settings
from lakelog.cli.common import standby_options
from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.table.commit import Commit, CommitInfo, Txn, put_commit
from tests.kit.cli import USAGE, Run, lines, printed, wrong
from tests.kit.joined import everything, joined, moving_topic, tables_of
from tests.kit.tiers import move_topic

FOREIGN = Commit(CommitInfo(operation="WRITE", engineInfo="another tool"), (Txn("theirs", 1),))


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    """A topic that has moved in part. Another tool has committed to both of its tables."""
    made = moving_topic(tmp_path, clock)
    topic = made.topic("t")
    fold(topic)
    move_topic(made, "t", [2, 2])
    fold(topic)
    assert made.remote is not None
    for store, table in zip((made.store, made.remote.store), tables_of(made, topic), strict=True):
        assert put_commit(store, topic.directory, table.version + 1, FOREIGN, clock) is None
    return made


def test_a_topic_whose_tables_stand_still_has_both_begun_again(run: Run, cluster: Cluster) -> None:
    data = cluster.store.url
    assert len(check(cluster.store).problems) == 2
    found = printed(run("root", "refold", "t", "--data", data, "--json"))
    first, remote = tables_of(cluster, cluster.topic("t"))
    assert found == {"topic": "t", "version": first.version}
    assert joined(first, remote) == everything(cluster)
    assert check(cluster.store).problems == []
    (said,) = lines(run("root", "refold", "t", "--data", data))
    assert said.startswith("the table over topic t is level again, at version ")
    assert check(cluster.store).problems == []


def test_the_first_table_is_begun_again_though_the_remote_root_is_away(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "away").rename(tmp_path / "gone")
    done = run("root", "refold", "t", "--data", cluster.store.url)
    assert done.exit_code != 0
    assert "the remote root" in done.stderr
    (tmp_path / "gone").rename(tmp_path / "away")
    (problem,) = check(cluster.store).problems
    assert problem.startswith("the table over topics/t (remote): ")


def test_a_topic_that_is_not_there_is_named(run: Run, cluster: Cluster) -> None:
    wrong(run("root", "refold", "u", "--data", cluster.store.url), USAGE, "there is no topic 'u'")


def test_a_copy_of_a_moment_that_is_past_says_its_moment(run: Run, root: Path, tmp_path: Path) -> None:
    """The root of `sales`, six records in two partitions, as it was when all of it was there."""
    found = {each["topic"]: each for each in printed(run("root", "history", "--data", str(root), "--json"))}
    assert found["sales"]["partitions"] == 2
    since = max(each["since_ms"] for each in found.values())
    *_, said = lines(run("root", "history", "--data", str(root)))
    assert said.startswith("the topics that are there can be copied as of any moment since ")
    moment = said.rpartition(" ")[2]
    first = printed(run("root", "copy", str(root), str(tmp_path / "then"), "--as-of", moment, "--json"))
    assert (first["as_of_ms"], first["records"] < 20) == (since, True)
    last = lines(run("root", "copy", str(root), str(tmp_path / "now"), "--as-of", "1ms"))
    assert last[0].startswith("copied as of 2")
    assert check(open_store(tmp_path / "now")).problems == []
    wrong(run("root", "copy", str(root), str(tmp_path / "no"), "--as-of", "noon"), USAGE, "'noon' is no time")
    wrong(run("root", "copy", str(root), str(tmp_path / "no"), "--as-of", "99999999d"), USAGE, "is no time")


def test_a_standby_has_the_options_of_the_root_where_it_has_none_of_its_own() -> None:
    own = {"region": "eu-west-1", "timeout": "5s"}
    settings = Settings(
        store_options={"region": "us-east-1", "allow_http": "true"}, standby_store_options=own
    )
    found = standby_options(settings, ["timeout=9s"])
    assert found == {"region": "eu-west-1", "allow_http": "true", "timeout": "9s"}
