"""InitProducerId: the id and the epoch of a producer (KIP-98, KIP-360)."""

from typing import Annotated

from api.kafka.protocol.notation import Int16, Int32, Int64, Message, Versions


class InitProducerIdRequest(Message):
    versions = Versions(0, 5)
    first_flexible = 2

    transactional_id: str | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Versions(3)] = -1
    producer_epoch: Annotated[Int16, Versions(3)] = -1


class InitProducerIdResponse(Message):
    versions = Versions(0, 5)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
