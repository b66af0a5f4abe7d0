"""A root that is copied while a transaction of it is open, and whose clients go on at the copy."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.produce import InitProducerIdRequest
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.layout import staging_directory
from log_tables.root.adopt import adopt
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.kafka import read_all
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.kafka_transactions import TIMEOUT_MS, Held, add, begin, end, pend, produce
from tests.kit.support import wait_until

FENCED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
GATEWAY = {"leader_timeout_ms": 1_000}

Copy = Callable[[Path, Path], object]


def by_command(original: Path, copy: Path) -> None:
    copy_root(open_store(original), open_store(copy), SystemClock(), keep_id=True)


def by_files(original: Path, copy: Path) -> None:
    """Without the last of the staged files: the copy came before it."""
    shutil.copytree(original, copy)
    max(staged(copy), key=lambda each: each.stat().st_mtime_ns).unlink()


def adopted(original: Path, copy: Path) -> None:
    by_files(original, copy)
    adopt(open_store(copy), SystemClock(), wait_s=1.0, keep_id=True)


def staged(root: Path) -> Iterator[Path]:
    place = root / Path(staging_directory(0)).parent
    return (each for each in place.rglob("*") if each.is_file())


def values(served: KafkaServed, topic: str) -> list[bytes | None]:
    return [each.value for each in read_all(served.bootstrap, topic)]


@contextmanager
def gateway(root: Path) -> Iterator[tuple[Asker, KafkaServed]]:
    with kafka_served(root, **GATEWAY) as served, asker(served.port) as asking:
        yield asking, served


def refused(asking: Asker, held: Held) -> None:
    """By whatever a client goes on with."""
    wait_until(
        lambda: produce(asking, held, "t", b"more", sequence=2).error_code == FENCED,
        "it is fenced, once no gateway of the original is waited for",
    )
    assert produce(asking, held, "other", b"more").error_code == FENCED
    assert add(asking, held, {"t": [0]}) == {"t": [FENCED]}
    assert pend(asking, held, "g", "t", 9, version=5) == FENCED
    asked = InitProducerIdRequest(
        transactional_id=held.id,
        transaction_timeout_ms=TIMEOUT_MS,
        producer_id=held.producer_id,
        producer_epoch=held.epoch,
    )
    assert asking.ask(asked, 4).error_code == FENCED
    for version in (4, 5):
        assert end(asking, held, version).error_code == FENCED


@pytest.mark.parametrize("make", [by_command, by_files, adopted])
def test_a_transaction_of_the_original_is_not_committed_in_the_copy(tmp_path: Path, make: Copy) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    with gateway(original) as (asking, served):
        for name in ("t", "other"):
            create_topic(served.gateway.cluster, name, 1)
        held = begin(asking, "x")
        for sequence, value in enumerate((b"one", b"two")):
            assert produce(asking, held, "t", value, sequence=sequence).error_code == ErrorCode.NONE
        assert pend(asking, held, "g", "t", 5, version=5) == ErrorCode.NONE
        make(original, copy)
        assert end(asking, held, 5).error_code == ErrorCode.NONE
        assert values(served, "t") == [b"one", b"two"], "the original goes on"
    with gateway(copy) as (asking, served):
        refused(asking, held)
        refused(asking, held._replace(epoch=held.epoch + 1))
        assert values(served, "t") == []
        anew = begin(asking, "x")
        assert produce(asking, anew, "t", b"new").error_code == ErrorCode.NONE
        assert pend(asking, anew, "g", "t", 7, version=5) == ErrorCode.NONE
        assert end(asking, anew, 5).error_code == ErrorCode.NONE
        assert values(served, "t") == [b"new"]
    assert check(open_store(copy)).problems == []
