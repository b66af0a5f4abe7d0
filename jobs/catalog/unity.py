"""A schema of Unity Catalog, by its REST API (api/all.yaml of its sources)."""

import json
from collections.abc import Sequence
from typing import Any

import httpx

from jobs.catalog.entry import Column, Entry
from jobs.catalog.plan import Found
from log_tables.errors import AccessDenied, AlreadyExists, InvalidArgument, LakelogError, Unreachable
from log_tables.layout import PARTITION

_API = "/api/2.1/unity-catalog"
_TIMEOUT_S = 60.0
_TYPES = {
    "integer": "INT",
    "long": "LONG",
    "short": "SHORT",
    "byte": "BYTE",
}
"""The names of types that are not Delta's own in capitals."""


class UnityCatalog:
    """The schema `catalog.schema` of the server at `url`; `token` is sent to it, unless it is empty. See
    `Catalog`.
    """

    def __init__(self, url: str, catalog: str, schema: str, token: str = "") -> None:
        """Raises InvalidArgument for a URL that is none of HTTP's."""
        if not url.startswith(("http://", "https://")):
            raise InvalidArgument(f"{url!r} is no URL of Unity Catalog; write it as http://host:8080")
        self._url, self._catalog, self._schema = url.rstrip("/").removesuffix(_API), catalog, schema
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=self._url + _API, headers=headers, timeout=_TIMEOUT_S)

    def tables(self) -> Sequence[Found]:
        found, place = list[Found](), {"catalog_name": self._catalog, "schema_name": self._schema}
        token = ""
        while True:
            answer = self._asked(
                "GET", "/tables", params={**place, **({"page_token": token} if token else {})}
            )
            if answer is None:
                self._check_catalog()
                return found
            found += (
                Found(each["name"], each.get("properties") or {}) for each in answer.get("tables") or ()
            )
            token = answer.get("next_page_token") or ""
            if not token:
                return found

    def table(self, name: str) -> Found | None:
        answer = self._asked("GET", f"/tables/{self._catalog}.{self._schema}.{name}")
        return None if answer is None else Found(name, answer.get("properties") or {})

    def begin(self) -> None:
        if self._asked("GET", f"/schemas/{self._catalog}.{self._schema}") is None:
            made = {"name": self._schema, "catalog_name": self._catalog, "comment": "Topics of lakelog."}
            self._asked("POST", "/schemas", json=made)

    def create(self, entry: Entry) -> None:
        made = {
            "name": entry.name,
            "catalog_name": self._catalog,
            "schema_name": self._schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [_column(index, each) for index, each in enumerate(entry.columns)],
            "storage_location": entry.location,
            "comment": entry.comment,
            "properties": dict(entry.properties),
        }
        if self._asked("POST", "/tables", json=made) is None:
            raise InvalidArgument(f"there is no schema {self._schema} any more; run it again")

    def drop(self, name: str) -> None:
        self._asked("DELETE", f"/tables/{self._catalog}.{self._schema}.{name}")

    def _check_catalog(self) -> None:
        if self._asked("GET", f"/catalogs/{self._catalog}") is None:
            raise InvalidArgument(
                f"there is no catalog {self._catalog!r} at {self._url}; create it, or name another "
                "by --catalog"
            )

    def _asked(self, method: str, path: str, **request: Any) -> Any:
        """The answer; None if there is no such thing."""
        try:
            answer = self._http.request(method, path, **request)
            if answer.status_code == httpx.codes.NOT_FOUND:
                return None
            if answer.is_error:
                raise _refused(self._url, answer)
            return {} if method == "DELETE" else answer.json()  # the server confirms it by plain text
        except (httpx.HTTPError, ValueError) as error:
            raise Unreachable(
                f"no Unity Catalog answers at {self._url} ({error}); start it, or name another by --url"
            ) from None


def _column(position: int, column: Column) -> dict[str, Any]:
    kind = column.kind
    name = kind if isinstance(kind, str) else kind["type"]
    made = {
        "name": column.name,
        "type_text": column.sql,
        "type_json": json.dumps(
            {"name": column.name, "type": kind, "nullable": column.nullable, "metadata": {}}
        ),
        "type_name": "DECIMAL" if name.startswith("decimal") else _TYPES.get(name, name.upper()),
        "position": position,
        "nullable": column.nullable,
        "comment": column.comment,
    }
    if column.name == PARTITION:
        made["partition_index"] = 0
    if name.startswith("decimal("):
        precision, scale = name.removeprefix("decimal(").removesuffix(")").split(",")
        made |= {"type_precision": int(precision), "type_scale": int(scale)}
    return made


def _refused(url: str, answer: httpx.Response) -> LakelogError:
    try:
        said = answer.json()
    except ValueError:
        said = {}
    code = said.get("error_code", "") if isinstance(said, dict) else ""
    reason = said.get("message") if isinstance(said, dict) else None
    text = f"Unity Catalog at {url} refused it: {reason or answer.text[:200] or answer.reason_phrase}"
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return AccessDenied(f"{text}; name a token with the right to do it by --token-file")
    if "ALREADY_EXISTS" in code or answer.status_code == httpx.codes.CONFLICT:
        return AlreadyExists(f"{text}; look whose it is")
    if answer.is_client_error:
        return InvalidArgument(f"{text}; change what it names")
    return Unreachable(f"{text}; try again later")
