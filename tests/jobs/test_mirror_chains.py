"""Mirrors whose source is lakelog: a copy of a copy, and two roots that copy each other."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from log_tables.cluster.admin import mirror_admin
from log_tables.cluster.admin.topic_admin import delete_topic
from log_tables.cluster.admin.undelete import undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.store.store import open_store
from tests.kit.kafka import KafkaGateway, kafka_gateway, produce
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import NAME, equal, level, name, note, running, sound, stopped, transactions

__all__ = ["name"]


@contextmanager
def root(directory: Path) -> Iterator[tuple[KafkaGateway, Cluster]]:
    """A root with a gateway, and what a mirror into it opens."""
    with kafka_gateway(directory) as gateway:
        yield gateway, Cluster.open(open_store(str(directory)))


def test_a_copy_of_a_copy_has_the_offsets_of_the_first(kafka: Broker, tmp_path: Path, name: str) -> None:
    kafka.create_topic(name)
    transactions(kafka, name, 0, "cac")
    with root(tmp_path / "middle") as (gateway, middle), root(tmp_path / "last") as (_, last):
        note(middle, kafka, name)
        with running(middle):
            level(middle, kafka, name)
            note(last, gateway, "^.*")
            with running(last):
                level(last, gateway, name)
                transactions(kafka, name, 1, "ca")
                level(middle, kafka, name)
                level(last, gateway, name)
        assert len(equal(last, kafka, name)) == 6
        sound(last)


def test_two_roots_that_copy_each_other_copy_no_copy_back(tmp_path: Path) -> None:
    with ExitStack() as open_:
        roots = [open_.enter_context(root(tmp_path / side)) for side in ("left", "right")]
        (left, left_root), (right, right_root) = roots
        left.create_topic("l")
        right.create_topic("r")
        note(left_root, right, "^.*")
        note(right_root, left, "^.*")
        with running(left_root), running(right_root):
            for _ in range(2):
                produce(left.bootstrap, "l", [b"1", b"2"])
                produce(right.bootstrap, "r", [b"3"])
                level(right_root, left, "l")
                level(left_root, right, "r")
        equal(right_root, left, "l", 4)
        equal(left_root, right, "r", 2)
        for each in (left_root, right_root):
            assert sorted(topic.name for topic in each.topics() if not topic.name.startswith("_")) == [
                "l",
                "r",
            ]
            sound(each)


def test_a_root_is_no_copy_of_itself(tmp_path: Path) -> None:
    with root(tmp_path / "root") as (gateway, own):
        gateway.create_topic("t")
        with pytest.raises(InvalidArgument, match="a gateway of this root, which cannot be its own copy"):
            note(own, gateway, "^copy-.*")


def test_a_source_that_is_deleted_and_brought_back_is_copied_on(tmp_path: Path) -> None:
    with root(tmp_path / "source") as (gateway, source), root(tmp_path / "copy") as (_, copy):
        gateway.create_topic("t")
        produce(gateway.bootstrap, "t", [b"1", b"2"])
        note(copy, gateway, "t")
        with running(copy):
            level(copy, gateway, "t")
        delete_topic(source, "t")
        undelete_topic(source, "t")
        produce(gateway.bootstrap, "t", [b"3"])
        with running(copy):
            level(copy, gateway, "t")
            delete_topic(source, "t")
            assert "has no such topic any more" in stopped(copy, "t")
        undelete_topic(source, "t")
        produce(gateway.bootstrap, "t", [b"4"])
        assert mirror_admin.resume(copy, NAME) == ["t"]
        with running(copy):
            level(copy, gateway, "t")
        equal(copy, gateway, "t", 4)
        sound(copy)
