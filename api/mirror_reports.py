"""The reports of the processes of mirrors, as a gateway follows them: which live, and what they say.

Where there is no mirror it does nothing. A report is taken for what it says only while its process lives.
"""

import math
from collections.abc import Mapping, Sequence

from log_tables.clock import Clock
from log_tables.cluster.admin.mirror_view import mirror_watch
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.mirror_report import MirrorReport
from log_tables.cluster.process_report import SILENT_S, ProcessWatch


class MirrorReports:
    """The processes of all mirrors, as one gateway knows them. `follow` is called from one thread, `living`
    from any.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock
        self._watches: dict[str, ProcessWatch] = {}
        self._found: Mapping[str, Sequence[MirrorReport]] = {}
        self._looked_s = -math.inf

    def follow(self) -> None:
        """Look at the reports of the mirrors that there are, as last refreshed. Raises StoreUnavailable."""
        mirrors = [*self._cluster.metadata_log.mirrors]
        self._watches = {
            name: self._watches.get(name) or mirror_watch(self._cluster, name) for name in mirrors
        }
        found = {}
        for name, watch in self._watches.items():
            watch.look()
            found[name] = watch.reports(MirrorReport)
        self._found, self._looked_s = found, self._clock.monotonic()

    def living(self, mirror: str) -> Sequence[MirrorReport]:
        """The newest reports of the processes of `mirror` that were seen to live; none if that was long ago.

        A process is seen to live once its report has changed: some seconds after it, or this gateway, began.
        """
        if self._clock.monotonic() >= self._looked_s + SILENT_S:
            return ()
        return self._found.get(mirror, ())
