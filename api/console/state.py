"""The parts that the pages of one gateway share: looks at the cluster, the figures of the last hour, and
queries in processes of their own.
"""

from starlette.requests import Request

from api.console.cluster_index import ClusterIndex
from api.console.query_runner import QueryRunner
from api.gateway import Gateway
from api.samples import SampleLog


class ConsoleState:
    """It does nothing until a page is asked for."""

    def __init__(self, here: Gateway, figures: SampleLog) -> None:
        self.index, self.figures = ClusterIndex(here), figures
        self.queries = QueryRunner(here)

    async def close(self) -> None:
        """End the processes of queries."""
        await self.queries.close()


def console(request: Request) -> ConsoleState:
    """The state of the console at the gateway that serves `request`: `app.state.console`."""
    found: ConsoleState = request.app.state.console
    return found
