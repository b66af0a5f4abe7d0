"""The process that copies: a thread for each mirror, which looks, reads and commits until it is to stop."""

import logging
import threading
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

from jobs.mirror.control import Control, Look
from jobs.mirror.copier import Copier
from jobs.mirror.source import Source
from log_tables.clock import timer
from log_tables.cluster.admin.mirror_admin import mirror_named
from log_tables.cluster.cluster import Cluster
from log_tables.errors import AccessDenied, MirroredTopic, OutcomeUnknown, Retriable, TopicDeleted

_log = logging.getLogger(__name__)

LOOK_S = 3.0
"""How often source and metadata log are looked at."""


class Runner:
    """Runs mirrors: those of `names`, or all that there are, also later ones."""

    def __init__(self, cluster: Cluster, names: Collection[str] = ()) -> None:
        """Raises InvalidArgument."""
        for name in names:
            mirror_named(cluster, name)
        self._cluster, self._names = cluster, names
        self._threads: dict[str, threading.Thread] = {}
        self._errors: list[BaseException] = []

    def run(self, stopping: threading.Event) -> None:
        """Copy until `stopping` is set, then commit what was read. What ends one mirror ends all, and is
        raised.
        """
        while not stopping.is_set():
            self._cluster.refresh()
            for name in self._names or [*self._cluster.metadata_log.mirrors]:
                if name not in self._threads:
                    self._threads[name] = threading.Thread(
                        target=self._mirror, args=(name, stopping), name=f"mirror-{name}"
                    )
                    self._threads[name].start()
            if self._names and not any(thread.is_alive() for thread in self._threads.values()):
                break
            stopping.wait(LOOK_S)
        for thread in self._threads.values():
            thread.join()
        for error in self._errors:
            raise error

    def _mirror(self, name: str, stopping: threading.Event) -> None:
        try:
            copy_mirror(self._cluster, name, stopping)
        except BaseException as error:  # noqa: BLE001 -- raised when all have ended
            _log.error("the mirror %s has ended: %s", name, error)
            self._errors.append(error)
            stopping.set()  # a process that copies only some of them would look well


def copy_mirror(cluster: Cluster, name: str, stopping: threading.Event, look_s: float = LOOK_S) -> None:
    """Copy what the mirror `name` names until `stopping` is set, then commit what was read. Every `look_s`
    seconds is looked at source and metadata log.

    Returns, too, when the mirror is deleted. Raises InvalidArgument for settings of the source, TakenOver.
    """
    mirror = mirror_named(cluster, name)
    source = Source(mirror.source, mirror.config, f"lakelog-mirror-{name}")
    control = Control(cluster, name, source)
    with ThreadPoolExecutor(1, thread_name_prefix="look") as pool, Copier(source) as copier:
        looking: Future[Look | None] | None = None
        due_s, said = 0.0, ""
        while not stopping.is_set():
            if looking is None and (copier.look_now or timer() >= due_s):
                failed, copier.failed, copier.look_now = copier.failed, {}, False
                looking = pool.submit(control.look, frozenset(copier.copies), failed)
            copier.step()
            if looking is not None and looking.done():
                try:
                    found, said = looking.result(), ""
                    if found is None:
                        _log.info("the mirror %s was deleted", name)
                        return
                    copier.let_go({*copier.copies} - found.stay)
                    copier.take(each for each in found.begin if each.place not in copier.failed)
                except (Retriable, AccessDenied, OutcomeUnknown, MirroredTopic, TopicDeleted) as error:
                    if str(error) != said:
                        _log.warning("the mirror %s looks again soon: %s", name, error)
                    said = str(error)
                looking, due_s = None, timer() + look_s
        copier.drain()
