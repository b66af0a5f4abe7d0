"""Earlier versions of topics' settings and of the rules of access, and the way back to them."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from api import access_changes, topic_changes
from api.errors import error_responses
from api.requests.access import Asked
from api.requests.route_gateway import Here
from api.requests.strict import StrictBody, StrictRoute
from api.scalars import microseconds
from api.v3.clusters import ClusterId, TopicName
from log_tables.cluster.metadata_history import Difference
from log_tables.errors import InvalidArgument

router = APIRouter(prefix="/v3/clusters/{cluster_id}", tags=["v3 history"], route_class=StrictRoute)

VERSIONS_MAX = 1_000
"""Versions that one answer shows."""

Limit = Annotated[int, Query(ge=1, le=VERSIONS_MAX, description="How many versions, the newest.")]


class DifferenceView(BaseModel):
    name: str = Field(description="A setting, or what a rule says.")
    old: str | None = Field(description="As it was; null at the default, or where there was no such rule.")
    new: str | None


class VersionView(BaseModel):
    version: int = Field(description="Goes back to here by `to_version`.")
    time_ms: int = Field(description="Milliseconds since 1970 UTC.")
    event: str = Field(description="created, altered, grown, mirrored, deleted, undeleted, or kept.")
    principal: str | None = Field(
        description="By whom, if the audit log says it and the caller may DESCRIBE the cluster."
    )
    partitions: int | None = Field(description="Of a topic.")
    changes: list[DifferenceView]


class HistoryView(BaseModel):
    since_ms: int = Field(description="Since when every version is there; 0: since the beginning.")
    data: list[VersionView] = Field(description="The newest first.")


class Reverted(BaseModel):
    version: int
    time_ms: int
    changes: list[DifferenceView]


class RevertedAcls(Reverted):
    lost: list[str] = Field(description="The rights that the caller loses, such as `READ on TOPIC flights`.")


class Wanted(NamedTuple):
    """A version by its number, or by a time in milliseconds since 1970."""

    version: int | None
    time_ms: int | None


async def _wanted(
    to_version: Annotated[int | None, Query(description="A version of the history.")] = None,
    to_time: Annotated[
        str | None, Query(description="The version of a time: milliseconds since 1970 UTC, or ISO 8601.")
    ] = None,
) -> Wanted:
    return _chosen(to_version, to_time)


def _chosen(to_version: int | None, to_time: str | None) -> Wanted:
    if (to_version is None) == (to_time is None):
        raise InvalidArgument("to_version and to_time exclude each other; send one of them")
    return Wanted(to_version, None if to_time is None else microseconds(to_time) // 1_000)


Version = Annotated[Wanted, Depends(_wanted)]
"""The version that a query names."""


class RevertBody(StrictBody):
    """A version, by its number or by a time: one of both."""

    to_version: int | None = Field(None, description="A version of the history.")
    to_time: str | int | None = Field(
        None, description="The version of a time: milliseconds since 1970 UTC, or ISO 8601."
    )

    def wanted(self) -> Wanted:
        """Raises InvalidArgument."""
        return _chosen(self.to_version, None if self.to_time is None else str(self.to_time))


class AclRevertBody(RevertBody):
    force: bool = Field(False, description="Do it even if the caller loses rights.")


@router.get(
    "/topics/{topic}/history",
    summary="List the versions of a topic's settings",
    responses=error_responses(404, 503),
)
def topic_history(
    here: Here, asked: Asked, cluster: ClusterId, topic: TopicName, limit: Limit = 100
) -> HistoryView:
    """The topic may be deleted."""
    history = topic_changes.topic_history(here, topic)
    shown = history.versions[: -limit - 1 : -1]
    by = access_changes.topic_changed_by(here, asked, topic, [each.at_ms for each in shown])
    return HistoryView(
        since_ms=history.since_ms,
        data=[
            VersionView(
                version=each.version,
                time_ms=each.at_ms,
                event=each.event,
                principal=by.get(each.at_ms),
                partitions=each.record.partitions,
                changes=_views(each.changes),
            )
            for each in shown
        ],
    )


@router.get(
    "/topics/{topic}/configs:revert",
    summary="Show what going back to earlier settings would change",
    responses=error_responses(400, 404, 409, 416, 422, 503),
)
def plan_topic(here: Here, asked: Asked, cluster: ClusterId, topic: TopicName, wanted: Version) -> Reverted:
    """Changes nothing. What the revert would be refused for, this is."""
    return _topic_view(topic_changes.plan_revert(here, asked, topic, *wanted)[0])


@router.post(
    "/topics/{topic}/configs:revert",
    summary="Go back to earlier settings, all or none",
    responses=error_responses(400, 404, 409, 416, 422, 503),
)
def revert_topic(
    here: Here, asked: Asked, cluster: ClusterId, topic: TopicName, wanted: RevertBody
) -> Reverted:
    """Gives the topic exactly the settings of a version, by one alteration: what `configs:alter` would refuse
    is refused. Partitions stay.
    """
    return _topic_view(topic_changes.revert_topic(here, asked, topic, *wanted.wanted()))


def _topic_view(found: topic_changes.Revert) -> Reverted:
    version = found.version
    return Reverted(version=version.version, time_ms=version.at_ms, changes=_views(found.changes))


@router.get(
    "/acls/history", summary="List the versions of the rules of access", responses=error_responses(404, 503)
)
def acl_history(here: Here, asked: Asked, cluster: ClusterId, limit: Limit = 100) -> HistoryView:
    """ACLs, super users, quotas, and whether the cluster is secured: the changes of one commit are a
    version.
    """
    history = access_changes.access_history(here, asked)
    shown = history.versions[: -limit - 1 : -1]
    by = access_changes.access_changed_by(here, asked, [each.at_ms for each in shown])
    return HistoryView(
        since_ms=history.since_ms,
        data=[
            VersionView(
                version=each.version,
                time_ms=each.at_ms,
                event="altered" if each.changes else "kept",
                principal=by.get(each.at_ms) if each.changes else None,
                partitions=None,
                changes=_views(each.changes),
            )
            for each in shown
        ],
    )


@router.get(
    "/acls:revert",
    summary="Show what going back to earlier ACLs would change",
    responses=error_responses(400, 404, 416, 503),
)
def plan_acls(here: Here, asked: Asked, cluster: ClusterId, wanted: Version) -> RevertedAcls:
    """Changes nothing."""
    return _acls_view(access_changes.plan_acl_revert(here, asked, *wanted))


@router.post(
    "/acls:revert",
    summary="Go back to earlier ACLs, all or none",
    responses=error_responses(400, 404, 409, 416, 503),
)
def revert_acls(here: Here, asked: Asked, cluster: ClusterId, wanted: AclRevertBody) -> RevertedAcls:
    """Makes the ACLs exactly those of a version, in one commit. Super users, quotas and security stay. 409 if
    the caller would lose rights, unless `force` is true.
    """
    return _acls_view(access_changes.revert_acls(here, asked, *wanted.wanted(), wanted.force))


def _acls_view(found: access_changes.AclRevert) -> RevertedAcls:
    return RevertedAcls(
        version=found.version.version,
        time_ms=found.version.at_ms,
        changes=_views(found.changes),
        lost=[*found.lost],
    )


@router.get(
    "/quotas:revert",
    summary="Show what going back to earlier quotas would change",
    responses=error_responses(400, 404, 416, 503),
)
def plan_quotas(here: Here, asked: Asked, cluster: ClusterId, wanted: Version) -> Reverted:
    """Changes nothing."""
    return _quotas_view(access_changes.plan_quota_revert(here, asked, *wanted))


@router.post(
    "/quotas:revert",
    summary="Go back to earlier quotas, all or none",
    responses=error_responses(400, 404, 416, 503),
)
def revert_quotas(here: Here, asked: Asked, cluster: ClusterId, wanted: RevertBody) -> Reverted:
    """Makes the quotas exactly those of a version, in one commit. ACLs, super users and security stay."""
    return _quotas_view(access_changes.revert_quotas(here, asked, *wanted.wanted()))


def _quotas_view(found: access_changes.QuotaRevert) -> Reverted:
    version = found.version
    return Reverted(version=version.version, time_ms=version.at_ms, changes=_views(found.changes))


def _views(changes: Sequence[Difference]) -> list[DifferenceView]:
    return [DifferenceView(name=each.name, old=each.old, new=each.new) for each in changes]
