"""Credentials of queries: they let in, and are found in no plan, checkpoint, event log, output or error."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog import Client, Credential
from lakelog.spark.options import gateway_location
from lakelog.spark.sink.options import parse_sink
from lakelog.spark.source.options import parse
from log_tables.errors import InvalidArgument
from tests.kit.certificates import Authority
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured
from tests.kit.support import ROOT

CANARY = "canary-77e3"

PROGRAM = """
import sys
from pyspark.errors import PySparkException
from lakelog.spark import session

root, url, directory, token, ca_file = sys.argv[1:]
spark = session(
    "canary",
    **{
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{directory}/events",
        "spark.sql.shuffle.partitions": "1",
    },
)
spark.sparkContext.setLogLevel("INFO")
secret = {"gateway": url, "path": root}
if token:
    secret |= {"token": token, "caFile": ca_file}
rows = spark.sql("select cast('v' as binary) value")
rows.write.format("lakelog").mode("append").options(**secret, topic="out").save()
stream = (
    spark.readStream.format("lakelog")
    .options(**secret, subscribe="out", startingOffsets="earliest", groupId="progress")
    .load()
    .select("value")
)
stream.explain(True)
query = (
    stream.writeStream.format("lakelog")
    .options(**secret, topic="copy")
    .option("checkpointLocation", f"{directory}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
query.explain(True)
print(query.lastProgress, query.id, query.status)
try:
    wrong = {**secret, "token": "wrong.CANARY", "caFile": ca_file}
    rows.write.format("lakelog").mode("append").options(**wrong, topic="out").save()
except PySparkException as error:
    print("refused:", error)
spark.stop()
""".replace("CANARY", CANARY)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def admin(secured: Secured) -> str:
    return secured.key()


@pytest.fixture(scope="module")
def gateway(authority: Authority, secured: Secured, admin: str) -> Iterator[RunningGateway]:
    """A gateway that authenticates its clients and speaks TLS, with the topics of the program."""
    pair = authority.pair("gateway")
    settings = {
        "ssl_certfile": pair.certfile,
        "ssl_keyfile": pair.keyfile,
        "peer_ca_certs": authority.ca_file,
        "authentication_methods": "api-key",
    }
    with running_gateway(secured.cluster.store.url, **settings) as running:
        credential = Credential.api_key(admin)
        with Client(running.url, credential=credential, ssl_context=authority.trusted()) as client:
            client.create_topic("out", 1)
            client.create_topic("copy", 1)
        yield running


@pytest.mark.spark
@pytest.mark.parametrize("way", ["option", pytest.param("environment", marks=pytest.mark.torture)])
def test_a_query_shows_its_credential_to_the_gateway_alone(
    gateway: RunningGateway, authority: Authority, admin: str, tmp_path: Path, way: str
) -> None:
    (tmp_path / "events").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKELOG_")}
    if way == "environment":
        environment |= {"LAKELOG_API_KEY": admin, "LAKELOG_CA_FILE": authority.ca_file}
    given = (admin if way == "option" else "", authority.ca_file)
    command = [sys.executable, "-c", PROGRAM, gateway.data, gateway.url, str(tmp_path), *given]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    assert "refused:" in done.stdout
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path).parts[0] for path in files} == {"events", "checkpoint"}
    written = {str(path): path.read_bytes().decode(errors="replace") for path in files}
    written |= {"output": done.stdout, "log": done.stderr}
    if way == "option":
        hidden = [name for name, text in written.items() if "(redacted)" in text]
        assert hidden, "no option is where this test looks"
    secrets = (admin, admin.split(".")[1], CANARY)
    assert [name for name, text in written.items() if any(secret in text for secret in secrets)] == []
    credential = Credential.api_key(admin)
    with Client(gateway.url, credential=credential, ssl_context=authority.trusted()) as client:
        assert client.offsets("copy", 0).end > 0
        assert client.group_offsets("progress")


def test_options_are_checked_and_not_shown(tmp_path: Path) -> None:
    given = {"path": str(tmp_path), "token": f"id.{CANARY}"}
    assert CANARY not in repr(parse_sink(given))
    assert CANARY not in repr(parse({**given, "subscribe": "t", "groupId": "g"}, streaming=True))
    assert gateway_location(given).client_options()["credential"].header() == f"Bearer id.{CANARY}"
    for wrong in ({"user": "bob"}, {"tokenFile": "file"}, {"token": f"two {CANARY}"}, {"keyFile": "key"}):
        with pytest.raises(InvalidArgument) as refused:
            parse_sink({**given, **wrong})
        assert CANARY not in str(refused.value)
    with pytest.raises(InvalidArgument, match="token does nothing without groupId"):
        parse({**given, "subscribe": "t"}, streaming=True)
