"""The roots of a world, and its clocks, for code that asks for them by a URL or without a word."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from log_tables import clock as clocks
from log_tables.clock import Clock
from log_tables.store import store as stores
from log_tables.store.bucket import ObjectStore
from log_tables.store.local import LocalStore
from log_tables.store.store import Store
from tests.simulation.disk import ROOT
from tests.simulation.substitutes import substituted

if TYPE_CHECKING:
    from tests.simulation.world import World

MAIN, REMOTE, COPIED = (f"{ROOT}/{name}" for name in ("root", "remote", "copy"))
"""The directories of the root, of its remote root, and of a copy."""

IN_BUCKET = {MAIN: "s3://simulated/root", COPIED: "s3://simulated/copy"}
"""These in a world whose root is a bucket."""

PEER_SECRET = "simulated-" * 4
"""Of all gateways on a bucket; those on a directory find one there."""


class Stores:
    """The stores that processes open."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.root, self.copied = (IN_BUCKET[each] if world.plan.bucket else each for each in (MAIN, COPIED))
        self._world.disk.make(MAIN)
        self.settings = {"peer_secret": PEER_SECRET} if world.plan.bucket else {}
        """The settings that gateways need for their root."""

    def open(
        self,
        url: str | os.PathLike[str],
        options: Mapping[str, str] | None = None,
        create: bool = True,
        clock: Clock | None = None,
        first: tuple[str, bytes] | None = None,
        durability: str = "auto",
    ) -> Store:
        """`open_store` in this world."""
        text, disk = os.fspath(url), self._world.disk
        if text.startswith("s3://"):
            bucket = ObjectStore(text, options or {})
            if create:
                bucket.check_puts()
            return bucket
        path = unquote(urlsplit(text).path) if "://" in text else text
        if create:
            disk.make(path, first)
        ordered = disk.ordered and durability == "auto"
        return LocalStore(Path(path), clock or self.clock(), options, ordered=ordered)

    def main(self, clock: Clock | None = None, create: bool = False) -> Store:
        """The root."""
        return self.open(self.root, create=create, clock=clock)

    def clock(self) -> Clock:
        """The clock of the process that asks."""
        current = self._world.scheduler.current
        return self._world.clock if current is None else current.process.clock

    def _timer(self) -> float:
        return self.clock().monotonic()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let our modules have these stores, and the clocks of this world."""
        instead = {
            id(stores.open_store): self.open,
            id(clocks.SystemClock): self.clock,
            id(clocks.timer): self._timer,
        }
        with substituted(lambda _, value: instead.get(id(value))):
            yield
