"""Standbys: roots that follow this one."""

import math

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.errors import error_responses
from api.requests.envelope import V2Response
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from api.standby_reports import SeenStandby

router = APIRouter(
    prefix="/standbys", tags=["standbys"], default_response_class=V2Response, route_class=StrictRoute
)


class StandbyProcess(BaseModel):
    """A process that was seen to replicate. `trouble` says what keeps it."""

    process: str
    host: str
    pid: int
    tables: int
    copied_bytes: int = Field(description="Bytes that it has put since it began.")
    trouble: str


class Standby(BaseModel):
    """A standby, as the processes that replicate to it say. Without one its lag is null."""

    standby: str = Field(description="The URL of its root.")
    level: bool = Field(description="Whether all its tables are as of one moment.")
    lag_seconds: float | None = Field(description="It has all that was here so long ago.")
    lag_commits: int = Field(description="Commits that were read here and are not there.")
    lag_records: int
    lag_bytes: int
    processes: list[StandbyProcess]


@router.get("", summary="List standbys", responses=error_responses(503))
async def list_standbys(here: Here) -> list[Standby]:
    """Standbys to which a process replicates, or did in the last hour."""
    return [_standby(each) for each in here.standbys.seen()]


def _standby(seen: SeenStandby) -> Standby:
    return Standby(
        standby=seen.target,
        level=seen.is_level,
        lag_seconds=None if math.isnan(seen.lag_s) else seen.lag_s,
        lag_commits=seen.commits,
        lag_records=seen.records,
        lag_bytes=seen.bytes,
        processes=[
            StandbyProcess(
                process=each.process,
                host=each.host,
                pid=each.pid,
                tables=each.tables,
                copied_bytes=each.copied_bytes,
                trouble=each.trouble,
            )
            for each in seen.processes
        ],
    )
