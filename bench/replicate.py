"""A standby: how late a record is there, what produce costs beside it, how fast a root is copied, how long a
promotion takes, and what a thousand quiet tables cost.
"""

import os
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench.cells import Figures, scratch
from bench.contest import Contest, contest
from bench.gateway import Gateway, cpu_seconds_of, kafka_gateway, running, wait_until
from bench.paced import Paced
from bench.soak.store import Bucket
from log_tables.clock import SystemClock, timer
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.root_location import note_location
from log_tables.cluster.standby import read_mark
from log_tables.errors import LakelogError
from log_tables.layout import TXN_HIGH_WATERMARK, partition_directory, topic_directory
from log_tables.limits import MIB
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.table.commit import read_commit

TOPIC, PARTITIONS, PACE = "bench", 16, 5_000
QUIET = 1_000
_RECORD_BYTES, _BATCH_BYTES = MIB // 4, 64 * MIB

WITHIN_S = 180
_WARM_S = 5
_LINGER_MS = 5
"""The default of Kafka's clients."""

_SETTLED_S = 60.0
_COPIES_AT_ONCE = 4
"""As many large files as replication copies at once."""

_LAKELOG = (sys.executable, "-m", "lakelog")


class _Site(NamedTuple):
    """A root and its standby: their URLs, and where the files of each are on this disk, also of a bucket."""

    directory: Path
    root: str
    standby: str
    root_files: Path
    standby_files: Path
    bucket: Bucket | None = None

    def replicate(self) -> AbstractContextManager[int]:
        """A process that replicates, by its id."""
        return running([*_LAKELOG, "replicate", self.standby, "--data", self.root], self.directory)

    def replicate_once(self) -> None:
        """Returns when the standby has all."""
        subprocess.run([*_LAKELOG, "replicate", self.standby, "--data", self.root, "--once"], check=True)
        if not _is_level(self.standby):
            raise RuntimeError("the standby is not of one moment")

    def wait_until_level(self) -> None:
        try:
            wait_until(lambda: _is_level(self.standby), "the standby is of one moment", WITHIN_S)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {(self.directory / 'said.txt').read_text()[-500:]}") from None

    def requests(self) -> Counter[str]:
        """How many requests the bucket has answered so far."""
        return Counter() if self.bucket is None else self.bucket.requests()

    def check(self) -> None:
        if check(open_store(self.standby, create=False)).problems:
            raise RuntimeError("the standby is not sound")


@contextmanager
def _site(root_on_s3: bool = False, standby_on_s3: bool = False) -> Iterator[_Site]:
    with scratch() as directory, ExitStack() as stack:
        bucket = stack.enter_context(Bucket(directory)) if root_on_s3 or standby_on_s3 else None
        if bucket is not None:
            os.environ.update(bucket.environment)

        def place(name: str, on_s3: bool) -> tuple[str, Path]:
            if bucket is None or not on_s3:
                return str(directory / name), directory / name
            url = f"{bucket.root}/{name}"
            return url, directory / "s3" / url.removeprefix("s3://")

        root, root_files = place("root", root_on_s3)
        standby, standby_files = place("standby", standby_on_s3)
        yield _Site(directory, root, standby, root_files, standby_files, bucket)


def _is_level(standby: str) -> bool:
    try:
        mark = read_mark(open_store(standby, create=False))
    except LakelogError:
        return False  # it has not begun
    return mark is not None and mark.is_level


def lag(seconds: int, on_s3: bool = False) -> Figures:
    """5,000 records/s over 16 partitions, each acknowledged by itself: ms from its acknowledgement until its
    commit is in the standby. And the gateway's processor time for a record, beside the process that
    replicates and without, in turn: alone, beside, beside, alone.
    """
    with _site(standby_on_s3=on_s3) as site, kafka_gateway(site.root_files) as (kafka, gateway):
        gateway.create_topic(TOPIC, PARTITIONS)
        with Paced(kafka, TOPIC, PARTITIONS, PACE, _WARM_S, _LINGER_MS):
            pass
        late: list[float] = []
        costs: dict[bool, list[float]] = {True: [], False: []}
        own = list[float]()
        for beside in (False, True, True, False):
            with site.replicate() if beside else nullcontext() as pid:
                if beside:
                    site.wait_until_level()
                    SystemClock().pause(_WARM_S)
                before, own_before = gateway.cpu_seconds, cpu_seconds_of(pid) if pid else 0.0
                with Paced(kafka, TOPIC, PARTITIONS, PACE, seconds, _LINGER_MS) as load:
                    pass
                costs[beside].append((gateway.cpu_seconds - before) / len(load.acknowledged))
                if pid:
                    own.append((cpu_seconds_of(pid) - own_before) / seconds)
                    wait_until(lambda: _end(site.standby) >= gateway.end_offset(TOPIC, PARTITIONS), "all")
                    late += _lateness(site, load.acknowledged)
        site.check()
    cuts = statistics.quantiles(late, n=1000)
    alone, beside_ = (statistics.mean(costs[each]) for each in (False, True))
    return {
        "p50 ms": 1e3 * cuts[499],
        "p99 ms": 1e3 * cuts[989],
        "p99.9 ms": 1e3 * cuts[998],
        "its processor, of a core": statistics.mean(own),
        "produce alone, us/record": 1e6 * alone,
        "produce beside, us/record": 1e6 * beside_,
        "produce beside, x alone": alone / beside_,
    }


def lag_on_s3(seconds: int) -> Figures:
    """As `lag`, with the standby in a bucket."""
    return lag(seconds, on_s3=True)


def _end(standby: str) -> int:
    cluster = Cluster.open(open_store(standby, create=False))
    return sum(each.refresh().high_watermark for each in cluster.topic(TOPIC).partitions())


def _lateness(site: _Site, acknowledged: dict[tuple[int, int], float]) -> Iterator[float]:
    """Seconds from each acknowledgement until the commit had its name, by the file's time of change."""
    wall_s = SystemClock().now_us() / 1e6 - timer()
    store = open_store(site.standby, create=False)
    for number in range(PARTITIONS):
        directory = partition_directory(topic_directory(TOPIC), number)
        for begin, (end, seen_s) in pairwise([(0, 0.0), *_ends(site, store, directory)]):
            for offset in range(begin[0], end):
                at = acknowledged.get((number, offset))
                if at is not None:
                    yield seen_s - wall_s - at


def _ends(site: _Site, store: Store, directory: str) -> Iterator[tuple[int, float]]:
    """The high watermark that each commit of a table sets, and when it had its name, seconds since 1970."""
    for file in sorted((site.standby_files / directory / "_delta_log").glob("*.json")):
        commit = read_commit(store, directory, int(file.stem))
        assert commit is not None
        end = max((txn.version for txn in commit.txns if txn.app_id == TXN_HIGH_WATERMARK), default=0)
        if end:
            yield end, file.stat().st_ctime_ns / 1e9


def catch_up(gigabytes: int, on_s3: bool = False) -> Figures:
    """So many GB of records of 256 KiB that cannot be compressed, in 16 partitions, from the start of
    `lakelog replicate --once` to its end; beside `cp -r` and `sync` of the same files, or puts of them into
    the bucket by as many threads.
    """
    with _site(standby_on_s3=on_s3) as site:
        size = _fill(site.root_files, gigabytes)
        begin = timer()
        remove = _put_each(site) if on_s3 else _cp(site)
        copied_s = timer() - begin
        remove()
        subprocess.run(["sync"], check=True)
        begin = timer()
        site.replicate_once()
        replicated_s, begin = timer() - begin, timer()
        site.replicate_once()
        again_s = timer() - begin
        site.check()
        undeleted_s = _undelete(site.root_files)
    return {
        "MB/s": size / replicated_s / 1e6,
        "a plain copy, MB/s": size / copied_s / 1e6,
        "x a plain copy": copied_s / replicated_s,
        "once more, s": again_s,
        "topic undelete, s": undeleted_s,
    }


def catch_up_on_s3(gigabytes: int) -> Figures:
    """As `catch_up`, with the standby in a bucket."""
    return catch_up(gigabytes, on_s3=True)


def _cp(site: _Site) -> Callable[[], None]:
    """Copy the root; returns what removes the copy."""
    copy = site.directory / "copy"
    subprocess.run(["cp", "-r", site.root, str(copy)], check=True)
    subprocess.run(["sync"], check=True)
    return lambda: shutil.rmtree(copy)


def _put_each(site: _Site) -> Callable[[], None]:
    """Put the files of the root into the bucket of the standby, at their paths; returns what removes them."""
    source, target = open_store(site.root, create=False), open_store(site.standby)
    paths = [item.path for item in source.list("")]
    with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
        for _ in pool.map(lambda path: target.put(path, source.get(path)), paths):
            pass
    return lambda: target.delete_objects(paths)


def _fill(root: Path, gigabytes: int) -> int:
    """A topic of so many GB; returns its bytes."""
    cluster = Cluster.open(open_store(str(root)))
    topic = create_topic(cluster, TOPIC, PARTITIONS)
    size = gigabytes * 1_000_000_000
    partitions = [topic.partition(number) for number in range(PARTITIONS)]
    for each in partitions:
        each.claim("bench")
    for number in range(size // _BATCH_BYTES):
        records = [Record(os.urandom(_RECORD_BYTES)) for _ in range(_BATCH_BYTES // _RECORD_BYTES)]
        partitions[number % PARTITIONS].append([AppendRequest(input_batch(records, 0))])
    return size


def _undelete(root: Path) -> float:
    """Seconds of `lakelog topic undelete` of the topic, from its call to its end."""
    with Gateway(root) as gateway:
        subprocess.run([*_LAKELOG, "topic", "delete", TOPIC, "--yes", "--url", gateway.url], check=True)
        begin = timer()
        subprocess.run([*_LAKELOG, "topic", "undelete", TOPIC, "--url", gateway.url], check=True)
        return timer() - begin


def promotion(seconds: int) -> Figures:
    """The gateway is killed under 5,000 records/s; then the seconds of `lakelog root promote`, and until a
    gateway on the standby has acknowledged a record.
    """
    with _site() as site, kafka_gateway(site.root_files) as (kafka, gateway):
        gateway.create_topic(TOPIC, PARTITIONS)
        with site.replicate():
            site.wait_until_level()
            with Paced(kafka, TOPIC, PARTITIONS, PACE, seconds, _LINGER_MS) as load:
                pass
            gateway.kill()
        held = _end(site.standby)
        begin = timer()
        subprocess.run([*_LAKELOG, "root", "promote", "--data", site.standby], check=True)
        promoted_s = timer() - begin
        with Gateway(site.standby_files) as promoted:
            produce = [*_LAKELOG, "produce", TOPIC, "--url", promoted.url]
            subprocess.run(produce, input=b"x\n", check=True)
            served_s = timer() - begin
    lost = max(0, len(load.acknowledged) - held)
    return {"s": promoted_s, "s until produce is served": served_s, "records lost": lost}


def quiet(seconds: int, on_s3: bool = False) -> Figures:
    """The share of a core that 1,000 tables cost to which nobody writes; and, from a bucket to a bucket, the
    requests to both a second, by what they are billed as.
    """
    with _site(on_s3, on_s3) as site:
        cluster = Cluster.open(open_store(str(site.root_files)))
        for number in range(QUIET // 8):
            topic = create_topic(cluster, f"{TOPIC}-{number}", 8)
            for each in topic.partitions():
                each.claim("bench")
                each.append([AppendRequest(input_batch([Record(b"once")], 0))])
        note_location(open_store(site.root, create=False))
        with site.replicate() as pid:
            site.wait_until_level()
            SystemClock().pause(_SETTLED_S)
            before, asked = cpu_seconds_of(pid), site.requests()
            SystemClock().pause(seconds)
            used = (cpu_seconds_of(pid) - before) / seconds
            asked = site.requests() - asked
        site.check()
    counts = {f"{verb} a second": number / seconds for verb, number in sorted(asked.items())}
    return {"of a core": used, **counts, "requests a second": asked.total() / seconds}


def quiet_on_s3(seconds: int) -> Figures:
    """As `quiet`, from a bucket to a bucket."""
    return quiet(seconds, on_s3=True)


CELLS: dict[str, Contest] = {
    "replicate: lag": contest(lag),
    "replicate: lag on S3": contest(lag_on_s3),
    "replicate: catching up": contest(catch_up),
    "replicate: catching up on S3": contest(catch_up_on_s3),
    "replicate: promotion": contest(promotion),
    "replicate: quiet tables": contest(quiet),
    "replicate: quiet tables on S3": contest(quiet_on_s3),
}
