"""Processes of a mirror that report without copying anything, and gateways that follow them by hand."""

from collections.abc import Callable, Mapping, Sequence

from log_tables.cluster.mirror_report import MirrorReport, SourcePartition
from log_tables.cluster.process_report import put_report
from log_tables.layout import mirror_directory
from log_tables.store.store import Store
from tests.kit.mirrored import MIRROR


class Reporting:
    """A process of MIRROR, as its reports say."""

    def __init__(self, store: Store, process: str = "p1") -> None:
        self._store, self._process, self._number = store, process, 0

    def report(
        self,
        topics: Mapping[str, Sequence[SourcePartition]],
        trouble: str = "",
        offsets_behind: int = 0,
    ) -> None:
        """Report once."""
        self._number += 1
        put_report(
            self._store,
            mirror_directory(MIRROR),
            MirrorReport(
                self._process,
                self._number,
                "machine" * self._number,  # of another length: a store may have one time for both
                100 + self._number,
                dict(topics),
                trouble,
                offsets_behind,
            ),
        )

    def live(self, follow: Callable[[], object], topics: Mapping[str, Sequence[SourcePartition]]) -> None:
        """Let the process be seen to live by who looks with `follow`."""
        for _ in range(2):
            self.report(topics)
            follow()
