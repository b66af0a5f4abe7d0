"""The administration of topics as each door does it: requests, and what each is answered and leaves to audit.

`python -m tests.kit.topic_doors FILE` writes the outcomes as they are now to a file.
"""

import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import msgspec
from typer.testing import CliRunner

from api.errors import code_of
from api.kafka.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from api.kafka.protocol.notation import Message
from coordinator.access.audit import Audit
from lakelog.cli import app
from log_tables.cluster.access_record import Quota, quota_record
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic_settings import SETTINGS
from tests.kit.kafka_asking import asker
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.kafka_topic_requests import MADE_UNASKED, TOO_MANY, requests
from tests.kit.secured import Secured, acl, bearer, everything
from tests.kit.support import WAIT_S

CAT, DAN = "User:cat", "User:dan"
"""One whose quota the first change uses up, and one who may create; `bob` may do nothing."""

MOST = 20
"""Partitions of the gateway."""

_CHANGES = ("alter?name=retention.ms&value=soon", "grow?count=3", "delete")

TEXT_SHOWN = 200
"""Characters of a text: an error lists all settings."""

NO_ID, WRONG_ID = (b64encode(each * 16).decode() for each in (b"\0", b"x"))

Outcome = dict[str, Any]


def outcomes(root: Path) -> dict[str, list[Outcome]]:
    """For each door the answer to each request, with the audit events of the request."""
    secured = Secured(root)
    cats = [f"{CAT}-{door}" for door in ("v2", "v3", "kafka")]
    rates = [quota_record(cat, Quota(controller_mutation_rate=0.001)) for cat in cats]
    secured.cluster.metadata_log.change_access(lambda _: rates)
    secured.allow(*(each for cat in cats for each in everything(cat, [ResourceType.TOPIC])))
    secured.allow(acl(DAN, Operation.CREATE, ResourceType.TOPIC, "dan-*"))
    for operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS):
        secured.allow(acl(DAN, operation, ResourceType.TOPIC, "page"))
    keys = {name: secured.key(f"User:{name}") for name in ("admin", "bob", "dan")}
    keys |= {cat.removeprefix("User:"): secured.key(cat) for cat in cats}
    with (
        kafka_served(root, authentication_methods=("api-key",), partitions_max=MOST) as served,
        httpx.Client(timeout=WAIT_S) as client,
    ):
        doors = Doors(served, client, keys)
        return {
            "v2": [*doors.over_http("v2", "/topics")],
            "v3": [*doors.over_http("v3", f"/v3/clusters/{doors.cluster_id}/topics")],
            "kafka": [*doors.over_kafka()],
            "console": [*doors.of_console()],
            "cli": [*doors.of_commands()],
        }


class Doors:
    """The doors of one gateway, and the keys of those who ask."""

    def __init__(self, served: KafkaServed, client: httpx.Client, keys: Mapping[str, str]) -> None:
        self._served, self._keys, self._client = served, keys, client
        self._url = served.gateway.cluster.url
        self.cluster_id = served.gateway.cluster.cluster_id

    def over_http(self, door: str, topics: str) -> Iterator[Outcome]:
        """Requests of one version of the API."""
        cat, t, u = f"cat-{door}", f"{door}-t", f"{door}-u"
        create = {"topic_name": t, "partitions_count": 2, "configs": _configs(compression__type="lz4")}
        yield self._send("admin", "POST", topics, create)
        for name in ("a b", "__mine", "__consumer_offsets", "x" * 250):
            yield self._send("admin", "POST", topics, {"topic_name": name})
        yield self._send("admin", "POST", topics, {"topic_name": t})
        yield self._send("admin", "POST", topics, {"topic_name": t, "partitions_count": TOO_MANY})
        for wrong in (
            _configs(no__such="1"),
            _configs(retention__ms="soon"),
            _configs(min__insync__replicas="2"),
        ):
            yield self._send("admin", "POST", topics, {"topic_name": u, "configs": wrong})
        for count in (0, -1, TOO_MANY, 1_000_000):
            yield self._send("admin", "POST", topics, {"topic_name": u, "partitions_count": count})
        yield self._send("admin", "POST", topics, {"topic_name": u, "colour": "red"})
        yield self._send("bob", "POST", topics, create)
        yield self._send("bob", "POST", topics, {"topic_name": "a b"})
        yield self._send("dan", "POST", topics, {"topic_name": f"dan-{door}"})
        yield self._send("dan", "POST", topics, {"topic_name": u})
        yield self._send(cat, "POST", topics, {"topic_name": cat})
        yield self._send(cat, "POST", topics, {"topic_name": f"{cat}-2"})
        yield self._send(cat, "POST", topics, {"topic_name": cat})
        yield self._send(cat, "POST", topics, {"topic_name": u, "partitions_count": TOO_MANY})
        if door == "v3":
            yield from self._changes_over_v3(topics, cat, t)
        for name in (u, "__mine", "__audit", "a b"):
            yield self._send("admin", "DELETE", f"{topics}/{name}")
        yield self._send("bob", "DELETE", f"{topics}/{t}")
        yield self._send(cat, "DELETE", f"{topics}/{cat}")
        yield self._send(cat, "DELETE", f"{topics}/{u}")
        yield self._send("admin", "DELETE", f"{topics}/{t}")
        yield self._send("admin", "DELETE", f"{topics}/{t}")

    def _changes_over_v3(self, topics: str, cat: str, t: str) -> Iterator[Outcome]:
        for name, count in (
            (t, 3),
            (t, 3),
            (t, 2),
            (t, 0),
            (t, TOO_MANY),
            (t, 1_000_000),
            ("absent", 2),
            ("__mine", 2),
        ):
            yield self._send("admin", "PATCH", f"{topics}/{name}", {"partitions_count": count})
        yield self._send("bob", "PATCH", f"{topics}/{t}", {"partitions_count": 4})
        yield self._send(cat, "PATCH", f"{topics}/{cat}", {"partitions_count": 4})
        yield self._send(cat, "PATCH", f"{topics}/{cat}", {"partitions_count": 1})
        for name, *alterations in (
            (
                t,
                {"name": "retention.ms", "value": "5000"},
                {"name": "compression.type", "operation": "DELETE"},
            ),
            (t, {"name": "retention.ms", "value": "soon"}),
            (t, {"name": "no.such", "value": "1"}),
            (t, {"name": "no.such", "operation": "DELETE"}),
            (t, {"name": "retention.ms", "operation": "DELETE", "value": "1"}),
            ("absent", {"name": "retention.ms", "value": "5000"}),
            ("absent", {"name": "retention.ms", "value": "soon"}),
            ("__mine", {"name": "retention.ms", "value": "5000"}),
        ):
            yield self._send("admin", "POST", f"{topics}/{name}/configs:alter", {"data": alterations})
        yield self._send(
            "bob", "POST", f"{topics}/{t}/configs:alter", {"data": [{"name": "retention.ms", "value": "1"}]}
        )
        wrong = topics.replace(self.cluster_id, "other")
        yield self._send("admin", "POST", wrong, {"topic_name": "elsewhere"})
        yield self._send("admin", "DELETE", f"{wrong}/{t}")

    def over_kafka(self) -> Iterator[Outcome]:
        """Requests of Kafka's clients."""
        for who, request in requests(f"{CAT.removeprefix('User:')}-kafka"):
            yield self._ask(who, request)
        found = self._served.gateway.cluster.cached_topic(MADE_UNASKED)
        assert found is not None
        for who in ("bob", "admin"):
            state = DeleteTopicState(topic_id=bytes.fromhex(found.topic_id))
            yield self._ask(who, DeleteTopicsRequest(topics=[state]))

    def of_console(self) -> Iterator[Outcome]:
        """Pages that show a change before it is made."""
        self._send("admin", "POST", "/topics", {"topic_name": "page", "partitions_count": 2})
        new = "/console/new-topic?name="
        for path in (
            f"{new}fresh&partitions=2&settings=compression.type%3Dlz4",
            f"{new}page",
            f"{new}a%20b",
            f"{new}__mine",
            f"{new}fresh&settings=no.such%3D1",
            f"{new}fresh&settings=retention.ms%3Dsoon",
            f"{new}fresh&partitions=0",
            f"{new}fresh&partitions={TOO_MANY}",
            f"{new}page&partitions={TOO_MANY}",
            f"{new}fresh&partitions=1000000",
            "/console/topics/page/alter?name=retention.ms&value=5000",
            "/console/topics/page/alter?name=retention.ms&reset=true",
            "/console/topics/page/alter?name=retention.ms&value=soon",
            "/console/topics/page/alter?name=no.such&value=1",
            "/console/topics/page/alter?name=partitioner.hash&value=murmur2",
            "/console/topics/page/grow?count=3",
            "/console/topics/page/grow?count=2",
            "/console/topics/page/grow?count=0",
            f"/console/topics/page/grow?count={TOO_MANY}",
            "/console/topics/page/grow?count=1000000",
            "/console/topics/page/delete",
            "/console/topics/absent/alter?name=retention.ms&value=5000",
            "/console/topics/absent/grow?count=3",
            "/console/topics/absent/delete",
            "/console/topics/__audit/delete",
        ):
            yield self._page("admin", path)
        for path in (f"{new}page", f"{new}dan-page", *(f"/console/topics/page/{each}" for each in _CHANGES)):
            yield self._page("dan", path)

    def of_commands(self) -> Iterator[Outcome]:
        """Commands, which ask version 3 for what they change."""
        yield self._run("topic", "create", "cli-t", "--partitions", "2", "--config", "compression.type=lz4")
        yield self._run("topic", "create", "cli-t")
        yield self._run("topic", "create", "cli-u", "--config", "retention.ms=soon")
        yield self._run("topic", "alter", "cli-t", "--config", "retention.ms=5000", "--partitions", "3")
        yield self._run("topic", "alter", "cli-t", "--unset", "no.such")
        yield self._run("topic", "alter", "absent", "--partitions", "3")
        yield self._run("topic", "alter", "cli-t", "--partitions", "3")
        yield self._run("topic", "delete", "--yes", "cli-t")
        yield self._run("topic", "delete", "--yes", "cli-t")

    # How each door is asked.

    def _send(self, who: str, method: str, path: str, body: Any = None) -> Outcome:
        audit = self._audited()
        headers = bearer(self._keys[who])
        answer = self._client.request(method, self._url + path, json=body, headers=headers)
        said = [
            answer.status_code,
            answer.json() if answer.content else None,
            _whole(answer.headers.get("Retry-After")),
        ]
        return self._outcome([who, method, path, body], said, audit)

    def _ask(self, who: str, request: Message) -> Outcome:
        audit = self._audited()
        with asker(self._served.port) as client:
            client.key(self._keys[who])
            answer = client.ask(request)
        said = _plain(answer)
        for each in said.get("topics", ()):
            if each.get("configs"):  # the others have their defaults
                each["configs"] = [one for one in each["configs"] if one["config_source"] != 5]
        said.pop("brokers", None)
        return self._outcome([who, type(request).__name__, _plain(request)], said, audit)

    def _page(self, who: str, path: str) -> Outcome:
        audit = self._audited()
        answer = self._client.get(self._url + path, headers=bearer(self._keys[who]) | {"Accept": "text/html"})
        main = answer.text.partition("<main")[2].partition("</main>")[0]
        words = unescape(re.sub(r"<[^>]+>", " ", main)).split()
        return self._outcome([who, path], [answer.status_code, " ".join(words)], audit)

    def _run(self, *words: str) -> Outcome:
        audit = self._audited()
        variables = {"LAKELOG_URL": self._url, "LAKELOG_API_KEY": self._keys["admin"], "LAKELOG_WAIT": "0"}
        done = CliRunner().invoke(app, words, env=variables)
        return self._outcome([*words], [done.exit_code, done.stdout, done.stderr], audit)

    def _audited(self) -> Audit:
        """A fresh audit, which collects the events of the next request."""
        here = self._served.gateway
        here.access.audit = audit = Audit(here.clock, code_of)
        return audit

    def _outcome(self, request: Any, answer: Any, audit: Audit) -> Outcome:
        names = (
            "kind",
            "operation",
            "principal",
            "resource_type",
            "resource_name",
            "success",
            "error_code",
            "facts",
        )
        events = [{name: getattr(event, name) for name in names} for event in audit.take(100)]
        made = {"request": request, "answer": answer, "events": events}
        text = json.dumps(made, default=dict)
        for shown, name in (
            (self._url.removeprefix("http://"), "HOST"),
            (self._served.gateway.settings.data, "ROOT"),
            (self.cluster_id, "CLUSTER"),
        ):
            text = text.replace(shown, name)
        plain: Outcome = json.loads(_WAITS.sub("in N s", text), object_hook=_lasting)
        return plain


_WAITS = re.compile(r"\bin \d+ s\b")


def _lasting(value: dict[str, Any]) -> dict[str, Any]:
    """The answer without times, random ids, defaults, and the ends of long texts."""
    for name in ("retry_after_s", "throttle_time_ms"):
        if value.get(name):
            value[name] = "N"
    if value.get("topic_id", NO_ID) not in (NO_ID, WRONG_ID):
        value["topic_id"] = "ID"
    if re.fullmatch("[0-9a-f]{32}", value.get("resource_name") or ""):
        value["resource_name"] = "ID"  # of a topic that was named by it
    if isinstance(value.get("configs"), dict):
        value["configs"] = {
            name: text
            for name, text in value["configs"].items()
            if name not in SETTINGS or text != SETTINGS[name].default
        }
    return {name: _cut(each) for name, each in value.items()}


def _cut(value: Any) -> Any:
    return value[:TEXT_SHOWN] + "…" if isinstance(value, str) and len(value) > TEXT_SHOWN else value


def _configs(**values: str) -> list[dict[str, str]]:
    return [{"name": name.replace("__", "."), "value": value} for name, value in values.items()]


def _plain(message: Any) -> Any:
    """A message as JSON has it."""
    return msgspec.to_builtins(message, enc_hook=str)


def _whole(seconds: str | None) -> str | None:
    """A wait that is not the least is one that passes."""
    return seconds if seconds in (None, "1") else "N"


def written(found: Mapping[str, list[Outcome]]) -> str:
    """The outcomes in the format of the recorded file, one a line."""
    doors = (
        f'"{door}": [\n' + ",\n".join(json.dumps(each, ensure_ascii=False) for each in made) + "\n]"
        for door, made in found.items()
    )
    return "{\n" + ",\n".join(doors) + "\n}\n"


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        Path(sys.argv[1]).write_text(written(outcomes(Path(directory))))
