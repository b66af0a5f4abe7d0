"""The lag of a group in the last hour, from the gateway that coordinates it."""

from urllib.parse import quote

from starlette.requests import Request

from api.console.gateways import told_by
from api.console.state import console
from api.gateway import Gateway
from api.requests.access import Authorization
from api.requests.heads import TARGETED, heads
from api.samples import GroupLags
from coordinator.groups.group import Group

NOTHING = GroupLags([], [], [], [])


async def lag_history(request: Request, here: Gateway, asked: Authorization, group: Group) -> GroupLags:
    """The samples of the group; none if its coordinator does not answer, or if the caller may not know of
    one of its topics: they are of all its partitions together.
    """
    if TARGETED in heads(request.scope):  # another gateway asks, which has looked at that
        return console(request).figures.lags(group.id)
    if not all(asked.describes(topic) for topic in {at.topic for at in group.offsets}):
        return NOTHING
    topic, partition = await here.shard_manager.partition_for(group.id)
    broker = here.brokers.other(here.leadership.leader_id(topic, partition))
    if broker is None:
        return console(request).figures.lags(group.id)
    path = f"/console/groups/{quote(group.id, safe='')}/history"
    return await told_by(here, broker, path, asked.context, GroupLags) or NOTHING
