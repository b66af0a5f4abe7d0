"""Consumer instances of the v2 API: create, subscribe, assign, keep alive, delete."""

from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request

from api.errors import error_responses
from api.requests.access import Asked, check_each, check_reads
from api.requests.body import take_body
from api.requests.envelope import V2_MEDIA_TYPE, V2Response
from api.requests.group_route import GroupRoute
from api.requests.route_gateway import Here, gateway
from api.v2.consumer_schema import (
    CreatedConsumer,
    GroupName,
    InstanceName,
    NewConsumer,
    Partitions,
    SubscriptionBody,
    Topics,
    parse_consumer,
)
from api.wire.offload import INLINE_MAX_ROWS, maybe_in_thread
from coordinator.groups.events import Assign, Heartbeat, Join, Subscribe, Unsubscribe
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import MixedSubscription

router = APIRouter(
    prefix="/consumers/{group}",
    tags=["v2 consumers"],
    default_response_class=V2Response,
    route_class=GroupRoute,
)


_CREATE_BODY = {"requestBody": {"content": {V2_MEDIA_TYPE: {"schema": NewConsumer.model_json_schema()}}}}


@router.post(
    "",
    summary="Create a consumer instance",
    response_model=CreatedConsumer,
    responses=error_responses(409, 413, 422, 503),
    openapi_extra=_CREATE_BODY,
)
async def create(request: Request, asked: Asked, group: GroupName) -> V2Response:
    """An empty body takes the defaults. The instance outlives the gateway. It ends when it is deleted, or
    when it sends no request for its session timeout.
    """
    here = gateway(request)
    wanted = parse_consumer(take_body(request))
    config = wanted.config(here.settings)
    name = wanted.chosen_name() or f"rest-consumer-{here.clock.unique_id()}"
    await here.coordinator.apply_event(group, Join(name, config, asked.identified))
    base = here.settings.advertised_url.rstrip("/")
    uri = f"{base}/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
    return V2Response({"instance_id": name, "base_uri": uri})


@router.delete(
    "/instances/{instance}",
    status_code=204,
    summary="Delete a consumer instance",
    responses=error_responses(404, 503),
)
async def delete(here: Here, group: GroupName, instance: InstanceName) -> None:
    """Its partitions go to the other members at once. With auto-commit, the offsets of the records that it
    has received are committed first.
    """
    await here.coordinator.leave(group, instance)


@router.post(
    "/instances/{instance}/heartbeat",
    status_code=204,
    summary="Send a heartbeat",
    responses=error_responses(404, 503),
)
async def heartbeat(here: Here, group: GroupName, instance: InstanceName) -> None:
    """Keeps the instance alive. Every other request of the instance does so as well: send heartbeats if
    processing takes longer than the session timeout.
    """
    await here.coordinator.apply_event(group, Heartbeat(instance))


@router.post(
    "/instances/{instance}/subscription",
    status_code=204,
    summary="Subscribe to topics",
    responses=error_responses(400, 404, 409, 422, 503),
)
async def subscribe(
    here: Here, asked: Asked, group: GroupName, instance: InstanceName, wanted: SubscriptionBody
) -> None:
    """Replaces an earlier subscription of the same kind. Topics that are created later are included. The
    caller needs READ on the topics that it names; of those that a pattern matches, it gets what it may read.
    """
    names = await maybe_in_thread(len(wanted.topics or ()) > INLINE_MAX_ROWS, wanted.names)
    await check_each(here, asked, Operation.READ, ResourceType.TOPIC, sorted(names))
    if wanted.topics is not None and wanted.topic_pattern is not None:
        raise MixedSubscription("the subscription has both topics and a topic_pattern; send one of them")
    event = Subscribe(instance, names, wanted.topic_pattern or "", asked.identified)
    await here.coordinator.apply_event(group, event)


@router.get(
    "/instances/{instance}/subscription", summary="Get the subscription", responses=error_responses(404, 503)
)
async def get_subscription(here: Here, asked: Asked, group: GroupName, instance: InstanceName) -> Topics:
    """The subscribed topics; for a pattern, the topics that it matches now."""
    found = await here.coordinator.apply_event(group, Heartbeat(instance))
    return Topics(topics=sorted(filter(asked.describes, found.subscription(found.member(instance)))))


@router.delete(
    "/instances/{instance}/subscription",
    status_code=204,
    summary="Unsubscribe",
    responses=error_responses(404, 503),
)
async def unsubscribe(here: Here, group: GroupName, instance: InstanceName) -> None:
    """Removes the subscription, or the manual assignment."""
    await here.coordinator.apply_event(group, Unsubscribe(instance))


@router.post(
    "/instances/{instance}/assignments",
    status_code=204,
    summary="Assign partitions manually",
    responses=error_responses(404, 409, 422, 503),
)
async def assign(
    here: Here, asked: Asked, group: GroupName, instance: InstanceName, wanted: Partitions
) -> None:
    """Replaces an earlier manual assignment. The instance then does not share partitions with the group."""
    await check_reads(here, asked, wanted.topic_partitions)
    await here.coordinator.apply_event(group, Assign(instance, frozenset(wanted.topic_partitions)))


@router.get(
    "/instances/{instance}/assignments",
    summary="Get assigned partitions",
    responses=error_responses(404, 503),
)
async def get_assignments(
    here: Here, asked: Asked, group: GroupName, instance: InstanceName, response: V2Response
) -> Partitions:
    """The partitions that the instance owns and keeps. The header `Generation` changes when they change."""
    found = await here.coordinator.apply_event(group, Heartbeat(instance))
    member = found.member(instance)
    response.headers["Generation"] = str(member.epoch)
    kept = sorted(at for at in member.owned - found.to_revoke(member) if asked.describes(at.topic))
    return Partitions.model_validate({"partitions": [at._asdict() for at in kept]})
