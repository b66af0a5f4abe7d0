"""The process that copies: a thread for each mirror, which looks, reads and commits until it is to stop."""

import logging
import threading
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from jobs.mirror.control import Control, Look
from jobs.mirror.copier import Copier
from jobs.mirror.groups import GroupSync, SetOffsets, following
from jobs.mirror.sharing import Sharing
from jobs.mirror.source import Source
from log_tables.clock import timer
from log_tables.cluster.admin.mirror_admin import mirror_named
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import MirrorRecord
from log_tables.cluster.process_report import REPORT_S
from log_tables.errors import (
    AccessDenied,
    InvalidArgument,
    MirroredTopic,
    OutcomeUnknown,
    Retriable,
    UnknownTopic,
)
from log_tables.store.disk_room import UNBOUNDED, DiskBounds, DiskRoom
from log_tables.topic_partition import TopicPartition as Place

_log = logging.getLogger(__name__)


class Runner:
    """Runs mirrors: those of `names`, or all that there are, also later ones."""

    def __init__(
        self,
        cluster: Cluster,
        names: Collection[str] = (),
        set_offsets: SetOffsets | None = None,
        disk: DiskBounds = UNBOUNDED,
    ) -> None:
        """`set_offsets` brings the offsets of groups over. Raises InvalidArgument."""
        for name in names:
            _source_of(mirror_named(cluster, name))
        self._cluster, self._names, self._set_offsets = cluster, names, set_offsets
        self._disk = disk
        self._threads: dict[str, threading.Thread] = {}
        self._errors: list[BaseException] = []

    def run(self, stopping: threading.Event) -> None:
        """Copy until `stopping` is set, then commit what was read.

        A mirror that cannot be copied now is tried again. A failure that nobody expects ends all, and is
        raised.
        """
        try:
            self._start_threads(stopping)
        finally:
            stopping.set()
            for thread in self._threads.values():
                thread.join()
        for failure in self._errors:
            raise failure

    def _start_threads(self, stopping: threading.Event) -> None:
        """A thread for each mirror, also for later ones, until `stopping` is set or those named are gone."""
        while not stopping.is_set():
            try:
                self._cluster.refresh()
            except Retriable as error:
                _log.warning("mirrors that are new are not seen now: %s", error)
            known = self._cluster.metadata_log.mirrors
            for name in self._names or [*known]:
                if name in known and (name not in self._threads or not self._threads[name].is_alive()):
                    self._threads[name] = threading.Thread(
                        target=self._mirror, args=(name, stopping), name=f"mirror-{name}"
                    )
                    self._threads[name].start()
            if self._names and not known.keys() & {*self._names}:
                return
            stopping.wait(REPORT_S)

    def _mirror(self, name: str, stopping: threading.Event) -> None:
        try:
            copy_mirror(self._cluster, name, stopping, set_offsets=self._set_offsets, disk=self._disk)
        except BaseException as failure:  # noqa: BLE001 -- raised when all have ended
            _log.error("the mirror %s has ended: %s", name, failure)
            self._errors.append(failure)
            stopping.set()  # a process that copies only some of them would look well


def copy_mirror(
    cluster: Cluster,
    name: str,
    stopping: threading.Event,
    look_s: float = REPORT_S,
    set_offsets: SetOffsets | None = None,
    disk: DiskBounds = UNBOUNDED,
) -> None:
    """Copy what the mirror `name` names until `stopping` is set, then commit what was read. Every `look_s`
    seconds is looked at source and metadata log, and at the room that the `disk` is to have.
    `set_offsets` brings the offsets of groups over.

    Other processes that do so share its partitions. The file with the settings of the source is read again
    when the source refuses, or librdkafka refuses them. Returns, too, when the mirror is deleted.
    """
    refused: tuple[str, bytes | None] | None = None
    why = ""
    with closing(Sharing(cluster.store, cluster.clock, name)) as sharing:
        while not stopping.is_set():
            mirror = cluster.metadata_log.mirrors.get(name)
            if mirror is None:
                return
            asked = mirror.source, _content(mirror.config)
            if asked != refused:  # librdkafka keeps something of each client that it refuses to make
                try:
                    copying = _Copying(cluster, mirror, sharing, set_offsets, disk)
                except InvalidArgument as error:
                    refused, why = asked, str(error)
                    _log.warning("the mirror %s copies nothing: %s", name, error)
                else:
                    if copying.is_done(stopping, look_s):
                        return
                    continue
            try:
                sharing.report_trouble(why)
                cluster.refresh()
            except Retriable as error:
                _log.warning("the mirror %s looks again soon: %s", name, error)
            stopping.wait(look_s)


def _content(file: str) -> bytes | None:
    try:
        return Path(file).read_bytes() if file else b""
    except OSError:
        return None


class _Copying:
    """The copying of a mirror, with the settings of its source as its file has them now."""

    def __init__(
        self,
        cluster: Cluster,
        mirror: MirrorRecord,
        sharing: Sharing,
        set_offsets: SetOffsets | None,
        disk: DiskBounds,
    ) -> None:
        """Raises InvalidArgument."""
        self._mirror, self._sharing = mirror, sharing
        self._source = _source_of(mirror)
        self._groups = GroupSync(cluster, mirror.name, self._source, set_offsets, sharing.owns_group)
        self._control = Control(
            cluster, mirror.name, self._source, sharing, DiskRoom(cluster.store, disk, cluster.clock)
        )

    def is_done(self, stopping: threading.Event, look_s: float) -> bool:
        """Copy until `stopping` is set or the mirror is deleted; false if it is to begin again, with other
        settings of its source.
        """
        with (
            ThreadPoolExecutor(1, thread_name_prefix="look") as pool,
            Copier(self._source) as copier,
            following(self._groups, look_s),
        ):
            looking: Future[Look | None] | None = None
            failed: dict[Place, Exception] = {}
            due_s, said = 0.0, ""
            while not stopping.is_set():
                if looking is None and (copier.look_now or timer() >= due_s):
                    failed, copier.failed, copier.look_now = copier.failed, {}, False
                    self._sharing.offsets_behind = self._groups.behind
                    looking = pool.submit(self._control.look, frozenset(copier.copies), failed)
                copier.step()
                if looking is None or not looking.done():
                    continue
                due_s = timer() + look_s
                try:
                    found, said = looking.result(), ""
                    if found is None:
                        _log.info("the mirror %s was deleted", self._mirror.name)
                        return True
                    copier.let_go({*copier.copies} - found.stay)
                    copier.take(each for each in found.begin if each.place not in copier.failed)
                    due_s = timer() if found.more else due_s
                except (Retriable, AccessDenied, OutcomeUnknown, MirroredTopic, UnknownTopic) as error:
                    copier.failed = {**failed, **copier.failed}  # nobody may have taken note
                    if str(error) != said:
                        _log.warning("the mirror %s looks again soon: %s", self._mirror.name, error)
                    said = str(error)
                    if self._source.is_set_otherwise():
                        _log.info("the mirror %s reads %s again", self._mirror.name, self._mirror.config)
                        return False
                looking = None
            copier.drain()
            return True


def _source_of(mirror: MirrorRecord) -> Source:
    """Raises InvalidArgument."""
    return Source(mirror.source, mirror.config, f"lakelog-mirror-{mirror.name}")
