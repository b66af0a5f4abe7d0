"""InitProducerId: an id for an idempotent producer (KIP-98). Transactions are not offered here.

A client beyond the bound hears that it is to try later, which none of them takes for a failure. No id is
forgotten for another one.
"""

import asyncio

from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from log_tables.limits import BRIEF_PRODUCER_ID_MIN, ONCE_PRODUCER_ID_MIN

EPOCH_MAX = 2**15 - 2
"""The last epoch of an id: Kafka's are int16, and its clients take another id then (KIP-360)."""

WAIT_S = 1.0
"""How long a client waits for the answer that it is to try later."""


async def init_producer_id(
    door: Door, client: Client, request: InitProducerIdRequest, _version: int
) -> InitProducerIdResponse:
    """A new id; for a producer that has one and lost its place, the next epoch of that (KIP-360)."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not client.caller.may_write_any():
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    known = BRIEF_PRODUCER_ID_MIN <= request.producer_id < ONCE_PRODUCER_ID_MIN
    if known and 0 <= request.producer_epoch < EPOCH_MAX:
        following = request.producer_epoch + 1
        return InitProducerIdResponse(producer_id=request.producer_id, producer_epoch=following)
    taken = door.producer_ids.take()
    if taken is None:
        await asyncio.sleep(WAIT_S)
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=taken, producer_epoch=0)
