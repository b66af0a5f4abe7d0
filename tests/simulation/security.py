"""Security that is switched on while everybody works, as docs/security.md says: a restart of each gateway."""

from typing import TYPE_CHECKING, ClassVar

import httpx

from tests.kit.secured import Secured, bearer, everything
from tests.simulation.actors import Actor
from tests.simulation.network import Network, SimulatedTransport
from tests.simulation.plan import TOPIC
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

CLIENTS = "User:clients"
METHODS = {"authentication_methods": "api-key"}
AGAIN_S = 0.1
INTRUDES_S = 0.5
UNAUTHENTICATED = 401


class Credential:
    """The credential of all clients: none, until they have a key."""

    def __init__(self) -> None:
        self.key = ""


class CredentialTransport(SimulatedTransport):
    """The network for a thread of a client that has a credential, and sends what was refused as it went
    without one again.
    """

    def __init__(self, network: Network, source: Process, credential: Credential) -> None:
        super().__init__(network, source)
        self._credential = credential

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        had_none = not self._credential.key
        self._show(request)
        answer = super().handle_request(request)
        if answer.status_code == UNAUTHENTICATED and had_none and self._credential.key:
            self._show(request)
            answer = super().handle_request(request)
        return answer

    def _show(self, request: httpx.Request) -> None:
        if self._credential.key:
            request.headers.update(bearer(self._credential.key))


class Securer(Actor):
    """Gives the clients a key, restarts the gateways one after the other, secures the cluster; from then on
    it is somebody without a credential.
    """

    name: ClassVar[str] = "security"
    _is_secured = False

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._intrusions: list[str] = []

    def work(self, process: Process) -> None:
        self.due.wait(process.clock.random())
        root = Secured(self.world.stores.root)
        if not self.world.credential.key:
            key = root.key(CLIENTS)
            root.allow(*everything(CLIENTS))
            self.world.credential.key = key
        self.world.settings |= METHODS
        for number in range(self.world.plan.gateways):
            self._restart(number)
        root.secure()
        self._is_secured = True
        while not self.stop.is_set():
            self._intrude(process)
            self.stop.wait(INTRUDES_S)

    def _restart(self, number: int) -> None:
        """Stop a gateway in order, and start it with authentication, unless others have."""
        while not self.stop.is_set():
            there = self.world.gateways[number]
            if there.settings.items() >= METHODS.items():
                if there.serves:
                    return
            elif not there.ended and not there.process.dead:
                there.stop()
            elif self.world.gateways[number] is there:
                self.world.start_gateway(number)
            self.scheduler.pause(AGAIN_S)

    def _intrude(self, process: Process) -> None:
        """Ask each gateway for something without a credential."""
        record = {"records": [{"value": "from nobody"}]}
        for number in range(self.world.plan.gateways):
            transport = SimulatedTransport(self.world.network, process)
            with httpx.Client(base_url=self.world.url(number), timeout=5, transport=transport) as client:
                for method, path, body in (
                    ("GET", f"/topics/{TOPIC}/partitions/0/records", None),
                    ("POST", f"/topics/{TOPIC}/partitions/0", record),
                ):
                    try:
                        answer = client.request(method, path, json=body)
                    except httpx.TransportError:
                        continue
                    if answer.status_code < 500 and answer.status_code != UNAUTHENTICATED:
                        self._intrusions.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")

    def has_worked(self, since: float) -> bool:  # noqa: ARG002 -- it is switched on once
        return self._is_secured

    def judge(self) -> None:
        assert not self._intrusions, f"who has no credential was let in: {self._intrusions}"
