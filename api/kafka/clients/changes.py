"""Changes of topics that clients ask for: counted, and made in a thread."""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode, Refusal
from log_tables.limits import KAFKA_RESOURCES_MAX

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


def refusals(keys: Iterable[Key]) -> dict[Key, Refusal | None]:
    """Each of the resources that a request names, and why it is not looked at: it is named twice, or comes
    after KAFKA_RESOURCES_MAX others.
    """
    found: dict[Key, Refusal | None] = {}
    for key in keys:
        if key in found:
            found[key] = Refusal(ErrorCode.INVALID_REQUEST, "it is named twice in one request")
        elif len(found) < KAFKA_RESOURCES_MAX:
            found[key] = None
        else:
            message = f"a request names at most {KAFKA_RESOURCES_MAX} resources; send several"
            found[key] = Refusal(ErrorCode.POLICY_VIOLATION, message)
    return found


async def in_thread(door: Door, change: Callable[[], Result]) -> Result:
    """The result of `change`, which may block. One that has begun goes on when its client is gone."""
    try:
        return await asyncio.get_running_loop().run_in_executor(door.changing, change)
    finally:
        door.here.changes.made += 1  # what was looked at before is old
