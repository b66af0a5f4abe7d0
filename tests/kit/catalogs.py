"""Catalogs of tables: Hive's metastore itself, from the jars of Spark; Glue as moto serves it; Unity
Catalog's own server where LAKELOG_UNITY_CATALOG names its classes, and a stand-in for it.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyspark

from lakelog.spark.java import java_home
from tests.kit.programs import Program
from tests.kit.support import free_port, listens

UNITY_CLASSES = os.environ.get("LAKELOG_UNITY_CATALOG", "")
"""The class path of Unity Catalog's server; docs/testing.md says how it is built."""

_API = "/api/2.1/unity-catalog"
_PAGE = 2
"""The tables of a page of the stand-in."""


@contextmanager
def hive_metastore(directory: Path) -> Iterator[str]:
    """The URL of a metastore that keeps its tables in memory."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": (directory / "warehouse").as_uri(),
        "hive.async.log.enabled": "false",
    }
    properties = (f"<property><name>{n}</name><value>{v}</value></property>" for n, v in settings.items())
    (directory / "hive-site.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
    port = free_port()
    jars = Path(pyspark.__file__).parent / "jars"
    main = "org.apache.hadoop.hive.metastore.HiveMetaStore"
    with _java(directory, f"{directory}:{jars}/*", main, "-p", str(port)) as program:
        program.until(lambda: listens(port), "the metastore listens")
        yield f"thrift://127.0.0.1:{port}"


@contextmanager
def glue_server() -> Iterator[str]:
    """The URL of moto's server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def unity_server(directory: Path) -> Iterator[str]:
    """The URL of Unity Catalog's own server, with the catalog `unity`."""
    (directory / "etc" / "conf").mkdir(parents=True)
    (directory / "etc" / "conf" / "hibernate.properties").write_text(
        "hibernate.connection.driver_class=org.h2.Driver\n"
        "hibernate.connection.url=jdbc:h2:mem:unity;DB_CLOSE_DELAY=-1\n"
        "hibernate.hbm2ddl.auto=update\n"
    )
    (directory / "etc" / "conf" / "server.properties").write_text(
        "server.env=dev\nserver.authorization=disable\n"
    )
    port = free_port()
    main = "io.unitycatalog.server.UnityCatalogServer"
    with _java(directory, UNITY_CLASSES, main, "--port", str(port)) as program:
        program.until(lambda: listens(port), "Unity Catalog listens")
        url = f"http://127.0.0.1:{port}"
        _post(f"{url}{_API}/catalogs", {"name": "unity"})
        yield url


def _post(url: str, body: dict[str, str]) -> None:
    import httpx

    httpx.post(url, json=body, timeout=60).raise_for_status()


@contextmanager
def _java(directory: Path, class_path: str, *arguments: str) -> Iterator[Program]:
    quiet = "-Dderby.stream.error.file=/dev/null"
    command = [str(java_home() / "bin" / "java"), "-XX:TieredStopAtLevel=1", quiet, "-cp", class_path]
    with Program([*command, *arguments], directory) as program:
        yield program


@dataclass
class UnityStandIn:
    """Answers as Unity Catalog's server does, to the requests that a sync makes: one catalog `unity`, whose
    schemas and tables it keeps. With a `token` it refuses requests that have another.
    """

    token: str = ""
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    url: str = ""

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        kind, _, name = path.removeprefix(f"{_API}/").partition("/")
        parts = name.split(".")
        match method, kind:
            case "GET", "catalogs":
                return (200, {"name": name}) if name == "unity" else _missing("CATALOG")
            case "GET", "schemas":
                return (200, {"name": parts[1]}) if parts[1] in self.schemas else _missing("SCHEMA")
            case "POST", "schemas":
                self.schemas[body["name"]] = {}
                return 200, body
            case "POST", _:
                return self._created(body)
            case _:
                return self._one(method, *parts[1:]) if name else self._listed(query)

    def _one(self, method: str, schema: str, name: str) -> tuple[int, Any]:
        tables = self.schemas.get(schema, {})
        if name not in tables:
            return _missing("TABLE")
        if method == "DELETE":
            del tables[name]
            return 200, None
        return 200, tables[name]

    def _listed(self, query: dict[str, str]) -> tuple[int, Any]:
        if query["catalog_name"] != "unity":
            return _missing("CATALOG")
        if query["schema_name"] not in self.schemas:
            return _missing("SCHEMA")
        after = query.get("page_token", "")
        tables = sorted(each for each in self.schemas[query["schema_name"]].items() if each[0] > after)
        page = tables[:_PAGE]
        more = page[-1][0] if len(tables) > _PAGE else None
        return 200, {"tables": [each for _, each in page], "next_page_token": more}

    def _created(self, body: Any) -> tuple[int, Any]:
        if body["schema_name"] not in self.schemas:
            return _missing("SCHEMA")
        tables = self.schemas[body["schema_name"]]
        if body["name"] in tables:
            return 400, {
                "error_code": "TABLE_ALREADY_EXISTS",
                "message": f"Table already exists: {body['name']}",
            }
        tables[body["name"]] = body
        return 200, body


def _missing(what: str) -> tuple[int, Any]:
    return 404, {"error_code": f"{what}_NOT_FOUND", "message": f"{what.capitalize()} not found"}


@contextmanager
def unity_stand_in(token: str = "") -> Iterator[UnityStandIn]:
    """A stand-in that serves at its `url`."""
    state = UnityStandIn(token)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            made: Any
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if state.token and self.headers.get("Authorization") != f"Bearer {state.token}":
                code, made = 401, {"error_code": "UNAUTHENTICATED", "message": "No valid token"}
            else:
                code, made = state.answer(self.command, url.path, query, json.loads(sent) if sent else None)
            content = b"200 OK" if made is None else json.dumps(made).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815 -- the names of http.server

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
