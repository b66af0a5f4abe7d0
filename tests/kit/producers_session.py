"""One session of Kafka's transactional clients over a store that may fail: commits and aborts of both
transaction versions with offsets of groups, a coordinator that is replaced and does not know, an id that
another client takes, and requests that come late. Clients send again, as Kafka's do.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from log_tables.clock import ManualClock
from log_tables.errors import LakelogError
from log_tables.store.store import Store
from log_tables.testing import Crash
from tests.kit.producers_clients import Client, Late, Shared
from tests.kit.producers_world import Node, World, make_topics

PATIENCE = 200
"""How often a client asks before it is said that it cannot go on."""


class Session:
    """Clients of two ids, of either transaction version, and their gateways.

    Gateways come to the store that `opened` returns, by what `wrap` makes of it until they die of a Crash.
    `cut` is called when all that was asked is answered; if the power is cut then, it returns true, and
    `opened` what that has left.
    """

    def __init__(
        self,
        opened: Callable[[], Store],
        wrap: Callable[[Store], Store] = lambda store: store,
        cut: Callable[[], bool] = lambda: False,
    ) -> None:
        self._opened, self._cut = opened, cut
        store, clock = opened(), ManualClock(seed=3)
        make_topics(store, clock)
        self.world = World(copy=store, clock=clock)
        self.world.come_to(store)
        self.world.store = wrap(store)
        self.shared = Shared(self.world)

    def run(self) -> None:
        """All of it, once through."""
        self._does(self._start)
        clients = [self._client(name, moves_on) for name, moves_on in (("x", True), ("y", False))]
        for commits in (True, False):
            for client in clients:
                self._write(client)
            for client in clients:
                self._end(client, commits)
        for client in clients:
            self._write(client)
        self._does(self._start)  # another gateway leads, and the one before does not know
        for client in clients:
            self._write(client)
            self._end(client, commits=True)
        for client in clients:
            self._write(client)
        self._write_once(self._client("x", moves_on=True))
        for place, late in enumerate(self.shared.late[::5]):
            self._does(partial(self._come_late, late, place))

    def finish(self) -> None:
        """Let everything end, when nothing fails any more."""
        self._die()
        for name in ("x", "y"):
            self._write_once(self._client(name, moves_on=True))
        for _ in range(10):
            self.world.advance(500)
            self.world.nodes[-1].go_on(1_000)

    def _client(self, name: str, moves_on: bool) -> Client:
        client = Client(self.shared, name, moves_on)
        self._drive(client)
        return client

    def _write_once(self, client: Client) -> None:
        self._write(client)
        self._end(client, commits=True)
        assert not client.dead

    def _write(self, client: Client) -> None:
        client.produce([(0, 1), (1, 2)])
        if client.transaction is None or client.transaction.offset is None:
            client.commit_offset()
        client.produce([(0, 2)])
        self._drive(client)

    def _end(self, client: Client, commits: bool) -> None:
        if client.transaction is not None:  # else it was aborted
            client.end(commits)
        self._drive(client)

    def _drive(self, client: Client) -> None:
        for _ in range(PATIENCE):
            if client.dead or not client.todo:
                break
            self._does(partial(self._step, client))
        else:
            raise AssertionError(f"{client.name} cannot go on: {client.todo}")
        if self._cut():
            self._die()

    def _step(self, client: Client) -> None:
        if not self.world.nodes:
            self._start()
        node = self.world.nodes[-1]
        if not client.waits:
            client.act(node, 5)
        node.go_on(1_000)
        client.hear()
        if client.todo:
            self.world.advance(100)
            node.go_on(1_000)

    def _come_late(self, late: Late, place: int) -> None:
        nodes = self.world.nodes
        if nodes:
            node = nodes[place % len(nodes)]
            with suppress(LakelogError):
                late(node)
            node.go_on(50)

    def _does(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Crash:
            self._die()

    def _start(self) -> None:
        """Another gateway begins, as soon as it can."""
        for _ in range(PATIENCE):
            try:
                self.world.nodes.append(Node(self.world))
                return
            except LakelogError:
                continue
        raise AssertionError("no gateway can begin")

    def _die(self) -> None:
        while self.world.nodes:
            self.world.nodes.pop().die()
        self.world.come_to(self._opened())
        for client in self.shared.clients:
            client.may_be_aborted = True
            client.give_up()  # what its gateway had under way is lost
