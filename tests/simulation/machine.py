"""The machine that a world takes the place of: its threads, disks, buckets and clocks."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import anyio.to_thread

from tests.simulation.bucket import served
from tests.simulation.disk import mounted
from tests.simulation.threads import installed

if TYPE_CHECKING:
    from tests.simulation.world import World


@contextmanager
def in_place_of_the_machine(world: "World") -> Iterator[None]:
    """Let threads, disks and clocks be those of `world`."""
    collected = gc.isenabled()
    with ExitStack() as stack:
        stack.enter_context(installed(world.scheduler))
        stack.enter_context(world.stores.installed())
        stack.enter_context(mounted(world.disk))
        stack.enter_context(served(world.bucket))
        stack.enter_context(patch.object(anyio.to_thread, "run_sync", _run_sync))
        gc.disable()  # it would call what has ended, at any time
        gc.freeze()
        said, logged = sys.unraisablehook, logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # gateways log what they meet, and the events have it
        try:
            yield
        finally:
            sys.unraisablehook = lambda _: None  # what is amid something ends anyhow
            world.scheduler.close()
            world.gateways.clear()
            world.clients.clear()
            gc.collect()
            gc.unfreeze()
            sys.unraisablehook = said
            logging.disable(logged)
            if collected:
                gc.enable()


async def _run_sync(work: Callable[..., Any], *args: Any, **_: object) -> Any:
    """A call in a thread, as anyio makes it."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: work(*args))
