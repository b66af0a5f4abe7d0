"""The mark of a standby says that it is of one moment only while it is."""

import pytest

from jobs.replica.causes import Metadata, fold_causes
from jobs.replica.level import Level
from jobs.replica.replicator import Replicator
from jobs.replica.table_log import Diverged
from jobs.replica.tables import Kind, Standing, TableCopy
from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.standby import StandbyMark, put_mark, read_mark
from log_tables.errors import OutcomeUnknown
from log_tables.layout import STANDBY, TXN_DELETED
from log_tables.store.store import Store, open_store
from log_tables.table.commit import Txn
from log_tables.testing import Fault, FaultyStore, answer_lost

MARK = StandbyMark("memory://original", "a cluster")


def level_of(target: Store, owns: bool = True) -> Level:
    put_mark(target, MARK)
    made = Level(target, ManualClock(), Standing(), lambda _: owns)
    made.begin(MARK)
    return made


def is_marked(target: Store) -> bool:
    mark = read_mark(target)
    assert mark is not None
    return mark.is_level


def test_a_mark_whose_answer_was_lost_is_taken_off_again() -> None:
    target = open_store("memory://marked")
    level = level_of(FaultyStore(target, [Fault(2, answer_lost, {"put"}, STANDBY)]))
    with pytest.raises(OutcomeUnknown):
        level.set(True)
    assert is_marked(target)
    assert not level.is_level
    level.set(False)
    assert not is_marked(target)


def test_a_process_that_does_not_mark_it_level_looks_whether_another_did() -> None:
    target = open_store("memory://marked")
    first, second = level_of(target), level_of(target, owns=False)
    first.set(True)
    second.set(False)
    assert not is_marked(target)
    mark = read_mark(target)
    assert mark is not None
    first.note(mark)
    first.keep()
    assert is_marked(target)  # nothing is lacking here


def test_a_standby_that_was_promoted_is_not_marked() -> None:
    target = open_store("memory://marked")
    level = level_of(target, owns=False)
    put_mark(target, StandbyMark(MARK.source, MARK.cluster_id, is_promoted=True))
    with pytest.raises(Diverged, match="was promoted"):
        level.set(True)


def test_the_table_over_a_topic_ends_after_the_record_that_says_so() -> None:
    assert [*fold_causes([Txn(TXN_DELETED, 1)], "topics/t")] == [Metadata()]


def test_a_table_that_comes_is_wanted_at_once() -> None:
    standing, wanted = Standing(), list[TableCopy]()
    standing.wanted = wanted.append
    copy = standing.added("topics/t/partition=0", Kind.PARTITION)
    assert wanted == [copy]
    assert standing.added(copy.directory, copy.kind) is copy
    assert len(wanted) == 1


def test_a_root_that_is_still_being_opened_is_not_taken_for_lost() -> None:
    """A report is due after three seconds, and a root with many tables takes longer to open."""
    source = open_store("memory://opened-slowly")
    Cluster.open(source, ManualClock())
    Replicator(source, open_store("memory://its-standby"), ManualClock()).check_source()
