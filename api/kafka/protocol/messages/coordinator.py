"""FindCoordinator: the broker that a group or a transaction belongs to."""

from typing import Annotated

from api.kafka.protocol.notation import Int8, Int16, Int32, Message, Struct, Versions


class FindCoordinatorRequest(Message):
    versions = Versions(0, 6)
    first_flexible = 3

    key: Annotated[str, Versions(0, 3)] = ""
    key_type: Annotated[Int8, Versions(1)] = 0
    coordinator_keys: Annotated[list[str], Versions(4)] = []


class Coordinator(Struct):
    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""


class FindCoordinatorResponse(Message):
    versions = Versions(0, 6)
    first_flexible = 3

    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    error_code: Annotated[Int16, Versions(0, 3)] = 0
    error_message: Annotated[str | None, Versions(1, 3)] = ""
    node_id: Annotated[Int32, Versions(0, 3)] = 0
    host: Annotated[str, Versions(0, 3)] = ""
    port: Annotated[Int32, Versions(0, 3)] = 0
    coordinators: Annotated[list[Coordinator], Versions(4)] = []
