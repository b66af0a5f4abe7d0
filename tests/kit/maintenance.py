"""A root with something to do for every job, and what has to be there when they have done it."""

import copy
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.engine import Engine
from jobs.maintenance import JOBS, Job, Maintenance
from jobs.outcome import JobOutcome
from log_tables.clock import ManualClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.root_location import note_location
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from tests.kit.engines import always, in_process
from tests.kit.partitions import records

Found = dict[str, list[Record]]
"""The records of every partition of a topic of users, by `topic/partition`."""

NAMES = PLAIN, OLD, KEYED, FAR, TYPED = "plain", "old", "keyed", "far", "typed"

_TOPICS = {
    PLAIN: {},
    OLD: {"retention.ms": "10000"},
    KEYED: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
    FAR: {"remote.storage.enable": "true", "local.retention.bytes": "0", "segment.bytes": "1024"},
    TYPED: {"value.columns": "wrong boolean FROM '/n'"},
}

DECLARED = "n bigint"
"""What TYPED declares when all is appended: its values fit this, and not what it declared before."""

STALE = 5
"""How many commits TYPED has, enough for a merge: a kill at each write of a retype is a test."""

EXPIRED = 4
"""How many commits of OLD are past its retention, with two records each."""


def newest_of_each_key(found: list[Record]) -> list[Record]:
    """The records that stay after a first compaction, if all have keys."""
    newest = {record.key: record.offset for record in found}
    return [record for record in found if newest[record.key] == record.offset]


class Root:
    """Five topics below `directory`, each for one job, in the root `here` with the remote root `away`."""

    def __init__(self, directory: Path, partitions: int = 1, commits: int = EXPIRED + 6) -> None:
        self.directory, self.clock = directory, ManualClock()
        self.store = open_store(directory / "here")
        self.cluster = Cluster.open(self.store, self.clock)
        set_remote_root(self.cluster, directory / "away")
        self.clock.advance(600_000)
        for name, configs in _TOPICS.items():
            topic = create_topic(self.cluster, name, partitions, {"merge.min.age.ms": "0", **configs})
            for partition in topic.partitions():
                partition.claim("")
                for number in range(min(commits, STALE) if name == TYPED else commits):
                    self.append(partition, name, number, 60_000 if number < EXPIRED else 0)
        alter_topic(self.cluster, TYPED, {"value.columns": DECLARED})
        self.clock.advance(1_000)  # modification times run ahead of a clock that stands still
        self.expected = self.read()
        self.expect(OLD, lambda found: found[2 * EXPIRED :])
        self.expect(KEYED, newest_of_each_key)

    def copied(self, directory: Path) -> "Root":
        """A copy of this root in `directory`."""
        shutil.copytree(self.directory, directory)
        made = copy.copy(self)
        made.directory, made.store = directory, open_store(directory / "here")
        note_location(made.store)
        made.cluster = made.opened()
        set_remote_root(made.cluster, directory / "away")
        return made

    def age(self, ms: int) -> None:
        """Make every file so much older, by the clock of the store."""
        for path in (self.directory / "here").rglob("*"):
            if path.is_file():
                then_s = path.stat().st_mtime - ms / 1_000
                os.utime(path, (then_s, then_s))

    def append(self, partition: Partition, name: str, number: int, age_ms: int = 0) -> None:
        """One commit of two records, as they suit the topic `name`."""
        at_us = self.clock.now_us() - 1_000 * age_ms
        text = f'{{"n":{number}}}' if name == TYPED else self.clock.random_hex(3_000 if name == FAR else 6)
        rows = [Record(text.encode(), b"%d" % (number % 3), (("h", None),)), Record(None, b"x%d" % number)]
        partition.append([AppendRequest(input_batch(rows, at_us))])

    def opened(self, store: Store | None = None) -> Cluster:
        """The cluster as another process opens it."""
        return Cluster.open(store or open_store(self.store.url), self.clock, create=False)

    def read(self) -> Found:
        """All records, by topic and partition, as another process reads them."""
        return {
            f"{topic.name}/{index}": records(partition)
            for topic in self.opened().topics()
            for index, partition in enumerate(topic.partitions())
        }

    def expect(self, topic: str, left: Callable[[list[Record]], list[Record]]) -> None:
        """Expect of what is expected in each partition of `topic` only what is `left`."""
        for name, found in self.expected.items():
            if name.startswith(f"{topic}/"):
                self.expected[name] = left(found)

    def write(self, cluster: Cluster, name: str) -> None:
        """One more commit to partition 0 of a topic, as another gateway makes it after a take-over."""
        partition = cluster.claim(cluster.topic(name), 0)
        self.append(partition, name, 1)
        self.expected[f"{name}/0"] += records(partition)[-2:]

    def check(self) -> None:
        """Assert that the root has exactly the expected records, and that fsck finds no problem."""
        assert self.read() == self.expected
        assert check(self.store, deep=True).problems == []

    def check_readable(self) -> None:
        """Assert that no expected record is missing, doubled or changed, whether the job was done or not."""
        for name, found in self.read().items():
            assert [record for record in found if record in self.expected[name]] == self.expected[name]
        assert check(self.store, deep=True).problems == []

    def check_done(self) -> None:
        """`check`, and nothing is left to do."""
        self.check()
        topics = self.opened().topics()
        assert {len(partition.snapshot.segments) for topic in topics for partition in topic.partitions()} == {
            1
        }
        assert run(self.opened()) == []


def run(cluster: Cluster, engine: Engine = in_process, jobs: Sequence[Job] = JOBS) -> list[JobOutcome]:
    """One run of a scheduler that has just been started."""
    return list(Maintenance(cluster, always(engine), jobs).run())


def interrupted(job: Job, meanwhile: Callable[[], None]) -> Job:
    """`job`, with something that another process does after it has planned."""

    def interrupted_run(engine: Engine, cluster: Cluster, steps: Sequence[object]) -> Sequence[JobOutcome]:
        meanwhile()
        return list(job.run(engine, cluster, steps))

    return job._replace(run=interrupted_run)


def errors(outcomes: Sequence[JobOutcome]) -> dict[str, str]:
    """Errors by `topic-partition`."""
    return {f"{o.topic}-{o.partition}": o.error for o in outcomes if o.error is not None}
