"""A topic whose declared columns are altered while records come. `fsck` judges the columns."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import httpx

from tests.kit.asking import Answer
from tests.kit.clients import Client, Producer, Task
from tests.kit.consumers import JSON
from tests.kit.history import At
from tests.kit.history_checker import Log
from tests.kit.workload import read_partition
from tests.simulation.scenes import CheckedScene, change

DECLARATIONS = (
    "text STRING",
    "text STRING, n BIGINT",
    "n INT, text STRING",
    "n STRING",
    "n BIGINT, m DOUBLE",
)


class ProducerOfColumns(Producer):
    """Sends objects, of which some do not fit."""

    def _send(self, stamp: Mapping[str, str]) -> Answer:
        topic, partition = self.task.at
        numbers = range(self._sent - len(self._values), self._sent)
        made = [
            {"text": text, "n": "x" if number % 5 == 0 else number}
            for text, number in zip(self._values, numbers, strict=True)
        ]
        body = {"records": [{"value": value} for value in made]}
        return self.gateways.ask(
            "POST", f"/topics/{topic}/partitions/{partition}", body, {"Content-Type": JSON, **stamp}
        )


class Alterer(Client):
    """Declares other columns, again and again."""

    def step(self) -> None:
        clock = self.gateways.clock
        self._stop.wait(clock.random())
        text = DECLARATIONS[int(clock.random() * len(DECLARATIONS))]
        body = {"data": [{"name": "value.columns", "value": text}]}
        change(self.gateways, "POST", f"topics/{self.task.at.topic}/configs:alter", body)


class Typed(CheckedScene):
    """Whatever is declared, each record is there as it was sent."""

    topic = "typed"
    configs: ClassVar[Mapping[str, str]] = {"value.columns": DECLARATIONS[0]}
    kinds: ClassVar[Mapping[str, type[Client]]] = {
        **CheckedScene.kinds,
        "produce plainly": ProducerOfColumns,
        "alter": Alterer,
    }

    @property
    def tasks(self) -> Sequence[Task]:
        at = At(self.topic, 0)
        return (
            Task("produce plainly", "typed", at),
            Task("produce plainly", "typed too", at),
            Task("alter", "alterer", at),
        )

    def read(self, client: httpx.Client) -> None:
        at = At(self.topic, 0)
        _, found = read_partition(client, at)
        values: Mapping[int, object] = found
        self.log = Log({at: {offset: _text(value) for offset, value in values.items()}}, {})


def _text(value: object) -> str:
    assert isinstance(value, dict), value
    return str(value["text"])
