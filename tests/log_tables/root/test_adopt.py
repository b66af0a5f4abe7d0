"""A root that was copied becomes one of its own, if it is whole and no gateway is on it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from jobs.state import look as look_at
from jobs.state import remote_of, table_of
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.root_location import RootLocation, locate
from log_tables.errors import Conflict, CorruptLog, InvalidArgument, StoreUnavailable
from log_tables.root.adopt import adopt
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.forked import run_lakelog
from tests.kit.gateway import running_gateway
from tests.kit.partitions import append_each, values
from tests.kit.several import brokers
from tests.kit.tiers import move_topic, tiered_cluster

VALUES = [b"0", b"1", b"2", b"3"]
LONG_S = 30.0
TIERED = {"remote.storage.enable": "true"}


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    """A cluster with a topic, and with a gateway on its list that has ended."""
    made = Cluster.open(open_store(tmp_path / "root"), clock)
    append_each(made.claim(create_topic(made, "t"), 0), VALUES)
    made.metadata_log.register_broker("http://original")
    return made


def test_it_has_another_id_and_no_gateways(cluster: Cluster) -> None:
    before = cluster.cluster_id
    made = adopt(cluster.store, cluster.clock, 0)
    cluster.refresh(wait=True)
    assert cluster.cluster_id == made != before
    assert cluster.metadata_log.brokers == {}
    assert values(cluster.topic("t").partition(0)) == VALUES
    assert check(cluster.store).problems == []
    assert locate(cluster.store) is RootLocation.HERE


def test_it_keeps_its_id_when_the_original_is_no_more(cluster: Cluster) -> None:
    assert adopt(cluster.store, cluster.clock, 0, keep_id=True) == cluster.cluster_id
    cluster.refresh(wait=True)
    assert cluster.metadata_log.brokers == {}


def test_a_root_with_a_gateway_that_lives_is_refused_but_by_force(tmp_path: Path) -> None:
    with running_gateway(tmp_path, refresh_interval_ms=50) as gateway:
        gateway.create_topic("t")
        before = gateway.cluster
        with pytest.raises(Conflict, match=f"broker 1 at {gateway.url} runs on this root"):
            adopt(open_store(tmp_path), SystemClock(), LONG_S)
        assert gateway.cluster == before
        assert [each["broker"] for each in brokers(gateway.url)] == [1]
        adopt(open_store(tmp_path), SystemClock(), LONG_S, force=True)
        assert gateway.produce("t", "goes on").status_code == 200
        assert gateway.cluster != before


def test_a_root_that_is_not_whole_is_refused_but_by_force(cluster: Cluster) -> None:
    path = next(
        item.path for item in cluster.store.list("topics/t/partition=0/") if item.path.endswith(".parquet")
    )
    cluster.store.delete(path)
    with pytest.raises(CorruptLog, match="not whole: topics/t/partition=0: segment"):
        adopt(cluster.store, cluster.clock, 0)
    adopt(cluster.store, cluster.clock, 0, force=True)
    assert locate(cluster.store) is RootLocation.HERE


def test_a_new_id_does_not_part_a_root_from_its_remote_records(tmp_path: Path, clock: ManualClock) -> None:
    tiered = tiered_cluster(tmp_path, clock)
    append_each(tiered.claim(create_topic(tiered, "t", configs=TIERED), 0), VALUES)
    move_topic(tiered, "t", [2])
    for force in (False, True):
        with pytest.raises(InvalidArgument, match="use --keep-id if the original no longer exists"):
            adopt(tiered.store, clock, 0, force=force)
    assert adopt(tiered.store, clock, 0, keep_id=True) == tiered.cluster_id
    assert values(tiered.topic("t").partition(0)) == VALUES


def test_a_remote_root_that_holds_nothing_stays_the_originals(tmp_path: Path, clock: ManualClock) -> None:
    tiered = tiered_cluster(tmp_path, clock)
    create_topic(tiered, "t")
    adopt(tiered.store, clock, 0)
    tiered.refresh(wait=True)
    assert (tiered.remote_root, tiered.remote) == (None, None)


def test_a_clone_that_is_adopted_has_the_remote_root_to_itself(tmp_path: Path, clock: ManualClock) -> None:
    """A snapshot of a volume is the same root twice, to all that files tell."""
    original = tiered_cluster(tmp_path, clock)
    append_each(original.claim(create_topic(original, "t", configs=TIERED), 0), VALUES)
    move_topic(original, "t", [2])
    shutil.copytree(tmp_path / "here", tmp_path / "clone")
    with pytest.raises(InvalidArgument, match="copy the original with `lakelog root copy`"):
        adopt(open_store(tmp_path / "clone"), clock, 0)
    adopt(open_store(tmp_path / "clone"), clock, 0, keep_id=True)
    clone = Cluster.open(open_store(tmp_path / "clone"), clock, create=False)
    kept = files(tmp_path / "away")
    with pytest.raises(CorruptLog, match="belongs to another root of this cluster id"):
        move_topic(original, "t", [1])
    with pytest.raises(CorruptLog, match="belongs to another root"):
        table_of(original, "t", 0, "topics/t/partition=0", remote=True)
    with pytest.raises(CorruptLog, match="belongs to another root"):
        create_topic(original, "u", configs=TIERED)
    with pytest.raises(CorruptLog, match="belongs to another root"):
        remote_of(original).remove("topics/t")
    assert "belongs to another root" in look_at(original)[0][-1].unreachable
    assert files(tmp_path / "away") == kept
    assert values(original.topic("t").partition(0)) == VALUES  # it may read
    move_topic(clone, "t", [1])
    assert values(clone.topic("t").partition(0)) == VALUES
    adopt(original.store, clock, 0, keep_id=True)
    original.refresh(wait=True)
    remote_of(original).check_owned()
    with pytest.raises(CorruptLog, match="belongs to another root"):
        remote_of(clone).check_owned()


def test_another_roots_remote_root_is_not_named_by_one_of_the_same_id(
    tmp_path: Path, clock: ManualClock
) -> None:
    tiered = tiered_cluster(tmp_path, clock)
    copy_root(tiered.store, open_store(tmp_path / "backup"), clock, keep_id=True)
    adopt(tiered.store, clock, 0, keep_id=True)
    backup = Cluster.open(open_store(tmp_path / "backup"), clock, create=False)
    with pytest.raises(
        InvalidArgument, match="if that root no longer exists, delete the object lakelog-owner"
    ):
        set_remote_root(backup, tmp_path / "away")
    open_store(tmp_path / "away").delete("lakelog-owner")
    set_remote_root(backup, tmp_path / "away")


def test_a_root_is_not_adopted_with_its_id_while_its_remote_root_is_away(
    tmp_path: Path, clock: ManualClock
) -> None:
    tiered = tiered_cluster(tmp_path, clock)
    (tmp_path / "away").rename(tmp_path / "unmounted")
    with pytest.raises(StoreUnavailable, match="remote root is missing"):
        adopt(tiered.store, clock, 0, keep_id=True)
    (tmp_path / "unmounted").rename(tmp_path / "away")
    remote_of(tiered).check_owned()


def files(root: Path) -> list[str]:
    return [item.path for item in open_store(root).list("")]


def lakelog(*words: str) -> "subprocess.CompletedProcess[str]":
    return run_lakelog("root", *words)


def test_the_commands_answer_programs_and_exit_as_all_do(cluster: Cluster, tmp_path: Path) -> None:
    root, copy = str(tmp_path / "root"), str(tmp_path / "copy")
    made = json.loads(lakelog("copy", root, copy, "--json").stdout)
    assert (made["topics"], made["records"] > 4, made["cluster_id"] != cluster.cluster_id) == (1, True, True)
    assert lakelog("copy", root, copy).returncode == 2
    assert lakelog("copy", str(tmp_path / "nothing"), copy).returncode == 2
    adopted = json.loads(lakelog("adopt", "--data", copy, "--json").stdout)
    assert adopted["cluster_id"] != made["cluster_id"]
    (tmp_path / "empty").mkdir()
    assert lakelog("adopt", "--data", str(tmp_path / "empty")).returncode == 2
