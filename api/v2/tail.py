"""Waiting for records at the end of a partition: long poll."""

from collections.abc import Sequence

from starlette.requests import Request

from api.gateway import Gateway
from api.requests.credential import check_again
from log_tables.errors import LakelogError
from log_tables.partition.reader import PartitionReader


async def wait_for_records(
    here: Gateway, request: Request, partition: PartitionReader, offset: int, deadline: float
) -> None:
    """Return when there is a record at `offset`, at `deadline`, or when nobody waits any more.

    Raises what `PartitionReader.refresh` raises: TopicDeleted as soon as that is known here;
    AuthenticationFailed as soon as the credential of the request is no longer right.
    """

    async def is_ready(troubles: Sequence[LakelogError]) -> bool:
        for trouble in troubles:
            raise trouble
        if partition.high_watermark > offset or here.stopping.is_set() or await request.is_disconnected():
            return True
        await check_again(here, request.scope)
        partition.check_live()
        return False

    if here.clock.monotonic() < deadline:
        await here.tails.wait_until(is_ready, [partition], deadline, here.loop_share)
