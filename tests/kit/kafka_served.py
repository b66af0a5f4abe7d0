"""A gateway with a door for Kafka's clients in the process of a test, on an event loop of its own: the test
sees what the gateway holds.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.gateway import Gateway
from api.kafka.listener import Listener
from api.process.server import listen
from tests.kit.served import served
from tests.kit.support import wait_until


@dataclass
class KafkaServed:
    """A gateway and its listener, which live on the event loop of another thread."""

    gateway: Gateway
    listener: Listener
    port: int
    loop: asyncio.AbstractEventLoop

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def is_idle(self) -> bool:
        """Whether connections hold nothing any more: no memory, no task, no place."""
        asked = asyncio.run_coroutine_threadsafe(_of_connections(), self.loop)
        rooms = (self.gateway.buffer.used, self.listener.answers.used, len(self.listener))
        return rooms == (0, 0, 0) and asked.result() == 0


async def _of_connections() -> int:
    names = [str(task.get_coro()) for task in asyncio.all_tasks()]
    return sum("RequestLine." in name or "_answered" in name for name in names)


@contextmanager
def kafka_served(root: Path, most: int = 1_000, **settings: Any) -> Iterator[KafkaServed]:
    """A listener that takes `most` connections, and is stopped in order; `settings` are those of `served`."""
    started, stopping = threading.Event(), asyncio.Event()
    found: list[KafkaServed] = []

    async def serve() -> None:
        socket = listen("127.0.0.1", 0)
        port = socket.getsockname()[1]
        async with served(root, kafka_advertised_listener=f"127.0.0.1:{port}", **settings) as here:
            listener = Listener(here.gateway, most, lambda: 0, Counter(), lambda made: made())
            await listener.start([socket], 1_000)
            found.append(KafkaServed(here.gateway, listener, port, asyncio.get_running_loop()))
            started.set()
            await stopping.wait()
            await listener.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    wait_until(lambda: started.is_set() or not thread.is_alive(), "the gateway listens")
    (here,) = found
    try:
        yield here
    finally:
        here.loop.call_soon_threadsafe(stopping.set)
        thread.join()
