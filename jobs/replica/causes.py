"""The causes of a commit: what another table must have before a reader may see it.

A root is written to in an order: the records are there before a group has consumed them, a transaction is
decided before its records are in their partitions, a table is made before a topic is named. The tables of a
standby come over one by one. If no commit is seen before what it rests on, the standby is at every moment a
root that the original could have been (Chandy and Lamport, "Distributed snapshots", 1985).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from log_tables.cluster.group_log import (
    Intent,
    IntentKey,
    OffsetKey,
    OffsetValue,
    ProducerKey,
    ProducerValue,
    TransactionsValue,
    decode,
)
from log_tables.layout import TXN_DELETED, log_epoch_of_txn, partition_directory
from log_tables.limits import PRODUCER_EPOCH_MAX
from log_tables.record import Record
from log_tables.root.group_replay import GroupReplay, applied
from log_tables.table.commit import Commit, Txn
from log_tables.topic_table.topic_snapshot import noted_partition


class Version(NamedTuple):
    """A table has this version."""

    directory: str
    version: int


class Records(NamedTuple):
    """The records of a table go up to this offset."""

    directory: str
    end: int


class Decided(NamedTuple):
    """The tables of groups have this transaction of a group's producer."""

    producer: int
    epoch: int


class Applied(NamedTuple):
    """The table of a partition has the records of this transaction of a group's producer."""

    directory: str
    producer: int
    epoch: int


class Ended(NamedTuple):
    """The tables of groups have the end of this transaction of a transactional id."""

    name: str
    number: int


class Metadata(NamedTuple):
    """The metadata log is as new as it was when the commit was seen."""


class Schemas(NamedTuple):
    """The schemas that were there when the commit was seen: records may be written with any of them."""


Cause = Version | Records | Decided | Applied | Ended | Metadata | Schemas


@dataclass(slots=True)
class GroupFacts:
    """The facts in a commit of a table of groups on which others rest, and the staged files that it names."""

    epochs: dict[int, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    intents: dict[IntentKey, Intent | None] = field(default_factory=dict)

    def staged(self) -> set[str]:
        """The staged files for which its transactions wait."""
        return {file.path for each in self.intents.values() if each is not None for file in each.staged}


def group_causes(
    rows: Iterable[Record], directory: str, groups: GroupReplay, places: Mapping[tuple[str, str, int], str]
) -> tuple[list[Cause], GroupFacts]:
    """The causes of new `rows` of the table of groups at `directory`, and their facts. `groups` is all that
    is known of groups, and takes them. `places` has the tables of topics by name, id and partition.

    Raises CorruptLog.
    """
    ends: dict[str, int] = {}
    waited: dict[str, int] = {}
    done = list[Cause]()
    facts = GroupFacts()
    for row in rows:
        key, value = decode(row, directory)
        match key, value:
            case OffsetKey(), OffsetValue():
                at = places.get((key.topic, value.topic_id, key.partition))
                if at is not None:
                    ends[at] = max(value.offset, ends.get(at, 0))
                for name, number in groups.waiting(key).items():
                    waited[name] = max(number, waited.get(name, 0))
            case ProducerKey(), ProducerValue():
                facts.ended[key.id] = value.number
            case IntentKey(), Intent():
                facts.intents[key] = value
                _reached(facts, value.producer_id, value.epoch)
            case IntentKey(), None:
                facts.intents[key] = None
                intent = groups.pending.get(key)
                if intent is not None:
                    done += _applications(intent, places)
            case _, TransactionsValue():
                _reached(facts, value.producer_id, value.number % (PRODUCER_EPOCH_MAX + 1))
        groups.take(key, value)
    causes: list[Cause] = [Records(at, end) for at, end in ends.items()]
    causes += [Ended(*each) for each in waited.items()]
    return causes + done, facts


def _applications(intent: Intent, places: Mapping[tuple[str, str, int], str]) -> Iterator[Cause]:
    """A transaction is struck off once its records are in all partitions that are there still."""
    for run in (run for file in intent.staged for run in file.runs):
        at = places.get((run.topic, run.topic_id, run.partition))
        if at is not None:
            yield Applied(at, intent.producer_id, intent.epoch)


def _reached(facts: GroupFacts, producer_id: int, epoch: int) -> None:
    facts.epochs[producer_id] = max(epoch, facts.epochs.get(producer_id, -1))


def data_causes(commit: Commit, version: int) -> Iterator[Cause]:
    """The causes of a commit of a partition's table. A change of properties comes after its record in the
    metadata log.
    """
    yield from txn_causes(commit.txns)
    if version > 0 and commit.metadata is not None:
        yield Metadata()


def txn_causes(txns: Collection[Txn]) -> Iterator[Cause]:
    """The causes of a partition's table that has `txns`: transactions come after their decision, and the end
    of a log, its going on, and a log epoch, after the metadata log says so.
    """
    yield from (Decided(*each) for each in applied(txns))
    yield from _end_causes(txns)


def _end_causes(txns: Collection[Txn]) -> Iterator[Cause]:
    if any(txn.app_id == TXN_DELETED or log_epoch_of_txn(txn.app_id) is not None for txn in txns):
        yield Metadata()


def fold_causes(txns: Collection[Txn], directory: str) -> Iterator[Cause]:
    """The causes of the table over the topic at `directory`, or of a commit of it, that has `txns`: its files
    are the partitions', and it ends with its topic, too.
    """
    yield from _end_causes(txns)
    for txn in txns:
        partition = noted_partition(txn.app_id)
        if partition is not None and txn.version >= 0:
            yield Version(partition_directory(directory, partition), txn.version)
