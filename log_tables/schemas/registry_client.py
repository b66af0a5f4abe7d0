"""A client of a schema registry: Confluent's API, which Karapace and Apicurio (`/apis/ccompat/v7`) also have.

A registry may be slow, send what is no answer, or never end: all that one call does has one deadline, and an
answer one size. Redirects are not followed, so that nobody else is asked.
"""

import asyncio
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Meta

from log_tables.errors import Unreachable
from log_tables.limits import (
    REGISTRY_ANSWER_MAX_BYTES,
    REGISTRY_AT_ONCE,
    REGISTRY_TIMEOUT_S,
    SCHEMA_DEPTH_MAX,
    SCHEMA_REFERENCES_MAX,
    SCHEMA_TEXT_MAX_CHARS,
)
from log_tables.schemas.registry import Reference, Registered, id_text, resolved
from log_tables.schemas.registry_record import ReferenceRecord, references_of
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaId, SchemaKind

if TYPE_CHECKING:
    import aiohttp

Result = TypeVar("Result")
_JSON = "application/vnd.schemaregistry.v1+json"
_GRACE_S = 0.5


class NoAnswer(Unreachable):
    """The registry cannot be reached, or is too slow or too busy: another request would fare no better."""


class WrongAnswer(Unreachable):
    """The registry answers, and not as registries do."""


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How a registry is asked: its URL, and a user with a password or a token."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""
    timeout_s: float = REGISTRY_TIMEOUT_S

    def headers(self) -> dict[str, str]:
        """The credential as a header. Files are read each time, as another program may replace them.

        Raises OSError.
        """
        password = self.password or _line(self.password_file)
        token = self.token or _line(self.token_file)
        if self.user:
            pair = f"{self.user}:{password}".encode()
            return {"Authorization": f"Basic {b64encode(pair).decode()}"}
        return {"Authorization": f"Bearer {token}"} if token else {}


def _line(path: str) -> str:
    return Path(path).read_text("utf-8").strip() if path else ""


class _Answer(msgspec.Struct, frozen=True):
    """A schema, as answers to all requests have it; each leaves out something."""

    schema: Annotated[str, Meta(max_length=SCHEMA_TEXT_MAX_CHARS)]
    schema_type: str | None = msgspec.field(default=None, name="schemaType")
    references: Annotated[list[ReferenceRecord], Meta(max_length=SCHEMA_REFERENCES_MAX)] | None = None
    subject: str | None = None
    version: int | None = None
    id: int | None = None
    guid: str | None = None


Found = Schema | InvalidSchema | WrongAnswer | None
"""A schema; why it is of no use; why the answer is none; None if there is no such schema."""


class RegistryClient:
    """Asks one registry. Blocking; thread-safe. A call takes `timeout_s` and a moment at most.

    Raises NoAnswer and WrongAnswer. A call that is cut off may leave a thread behind, which waits for the
    resolver of names: until it ends, every call is NoAnswer.
    """

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access
        self._left_behind: threading.Thread | None = None

    def schemas(self, ids: Sequence[SchemaId]) -> dict[SchemaId, Found]:
        """The schema that the registry has for each of these ids, as far as it has answered in time.

        Raises NoAnswer if it has answered for none.
        """
        found: dict[SchemaId, Found] = {}

        async def ask(session: "_Session") -> None:
            room = asyncio.Semaphore(REGISTRY_AT_ONCE)

            async def one(schema_id: SchemaId) -> None:
                async with room:
                    found[schema_id] = await _schema(session, schema_id)

            await asyncio.gather(*map(one, ids))

        try:
            self._run(ask)
        except NoAnswer:
            if not found:
                raise
        return found.copy()

    def subjects(self) -> list[str]:
        """The subjects, as the registry lists them."""
        return self._run(lambda session: session.get("/subjects", list[str])) or []

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject; none of one that does not exist."""
        return self._run(lambda session: session.get(f"{_subject(subject)}/versions", list[int])) or []

    def registered(self, subject: str, version: int | None = None) -> Registered | None:
        """A version of a subject, the latest if none is named."""
        return self._run(lambda session: _version(session, subject, version or "latest"))

    def find(self, subject: str, schema: Schema) -> Registered | None:
        """The version of `subject` that is `schema`, which refers to nothing."""
        body = {"schema": schema.text, "schemaType": schema.kind}

        async def ask(session: "_Session") -> Registered | None:
            return _registered(await session.get(_subject(subject), _Answer, body), subject)

        return self._run(ask)

    def schema_of(self, registered: Registered) -> Schema:
        """A version with all that it refers to. Raises InvalidSchema."""
        return self._run(lambda session: _whole(session, registered))

    def _run(self, ask: Callable[["_Session"], Coroutine[Any, Any, Result]]) -> Result:
        """The result of `ask` in an event loop of its own: the deadline cuts off whatever is waited for."""
        if self._left_behind is not None and self._left_behind.is_alive():
            raise NoAnswer(f"{self._access.url} has not answered, and its name is still looked up")
        made: list[Result] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                made.append(asyncio.run(_in_session(self._access, ask)))
            except Exception as error:  # noqa: BLE001  it is raised in the thread that waits
                failed.append(error)

        thread = threading.Thread(target=run, name="lakelog-registry", daemon=True)
        thread.start()
        thread.join(self._access.timeout_s + _GRACE_S)
        if failed:
            raise failed[0]
        if made:
            return made[0]
        self._left_behind = thread
        raise NoAnswer(f"{self._access.url} has not answered within {self._access.timeout_s:g} s")


async def _in_session(
    access: RegistryAccess, ask: Callable[["_Session"], Coroutine[Any, Any, Result]]
) -> Result:
    import aiohttp  # here, as it takes a tenth of a second to load, and few processes ask a registry

    try:
        plain = {"Accept": f"{_JSON}, application/json;q=0.9", "Accept-Encoding": "identity"}
        headers = {**plain, **access.headers()}
        secure = access.url.startswith("https:")
        context = ssl.create_default_context(cafile=access.ca_file or None) if secure else False
        async with (
            asyncio.timeout(access.timeout_s),
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context, limit=REGISTRY_AT_ONCE),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=headers,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as session,
        ):
            return await ask(_Session(session, access.url))
    except TimeoutError:
        raise NoAnswer(f"{access.url} has not answered within {access.timeout_s:g} s") from None
    except aiohttp.ClientConnectionError as error:
        raise NoAnswer(f"{access.url} cannot be reached ({error})") from None
    except aiohttp.ClientError as error:
        raise WrongAnswer(f"{access.url} sends no HTTP ({error!r:.200})") from None
    except OSError as error:
        raise NoAnswer(f"{access.url} cannot be asked ({error})") from None
    except ValueError:  # its text may show the credential
        raise WrongAnswer(f"{access.url} cannot be asked: its credential is no line of text") from None


class _Session:
    """The requests of one call."""

    def __init__(self, session: "aiohttp.ClientSession", url: str) -> None:
        self._session, self._url = session, url

    async def get(self, path: str, kind: type[Result], body: object = None) -> Result | None:
        """The answer to a GET of `path`, or to a POST of `body`; None if there is no such thing."""
        from yarl import URL

        method, headers = ("GET", {}) if body is None else ("POST", {"Content-Type": _JSON})
        data = None if body is None else msgspec.json.encode(body)
        url = URL(f"{self._url}{path}", encoded=True)
        async with self._session.request(
            method, url, data=data, headers=headers, allow_redirects=False
        ) as answer:
            if answer.status == 404:
                return None
            self._check(answer)
            return self._decoded(await self._body(answer), path, kind)

    def _check(self, answer: "aiohttp.ClientResponse") -> None:
        status = answer.status
        if status in (429, 502, 503, 504):
            raise NoAnswer(f"{self._url} answers {status}: it is too busy, or away")
        if status in (401, 403):
            raise WrongAnswer(
                f"{self._url} answers {status}: the credentials in schema_registries do not suffice"
            )
        if 300 <= status < 400:
            to = answer.headers.get("Location", "")[:200]
            raise WrongAnswer(f"{self._url} answers {status} and leads to {to!r}; name the URL that answers")
        if status != 200:
            raise WrongAnswer(f"{self._url} answers {status}")

    async def _body(self, answer: "aiohttp.ClientResponse") -> bytes:
        data = bytearray()
        async for piece in answer.content.iter_any():
            data += piece
            if len(data) > REGISTRY_ANSWER_MAX_BYTES:
                raise WrongAnswer(f"{self._url} answers more than {REGISTRY_ANSWER_MAX_BYTES} bytes")
        return bytes(data)

    def _decoded(self, data: bytes, path: str, kind: type[Result]) -> Result:
        try:
            return msgspec.json.decode(data, type=kind)
        except (ValueError, RecursionError):
            raise WrongAnswer(f"{self._url}{path} answers what no registry does: {data[:40]!r}") from None


async def _schema(session: _Session, schema_id: SchemaId) -> Found:
    try:
        path = f"/schemas/{'ids' if isinstance(schema_id, int) else 'guids'}/{id_text(schema_id)}"
        found = await session.get(path, _Answer)
        if found is None:
            return None
        named = found.id if isinstance(schema_id, int) else found.guid and found.guid.lower()
        if named is not None and named != schema_id:
            return WrongAnswer(f"the registry answers for schema {schema_id} with schema {named}")
        registered = _registered(found, "")
        return None if registered is None else await _whole(session, registered)
    except (InvalidSchema, WrongAnswer) as error:
        return error


async def _version(session: _Session, subject: str, version: int | str) -> Registered | None:
    path = f"{_subject(subject)}/versions/{version}"
    deleted = "" if version == "latest" else "?deleted=true"
    return _registered(await session.get(f"{path}{deleted}", _Answer), subject)


def _registered(found: _Answer | None, subject: str) -> Registered | None:
    if found is None:
        return None
    try:
        kind = SchemaKind(found.schema_type or SchemaKind.AVRO)
    except ValueError:
        raise WrongAnswer(f"it is {str(found.schema_type)[:40]!r}, which is no language of schemas") from None
    return Registered(
        found.subject or subject,
        found.version or 0,
        found.id or 0,
        kind,
        found.schema,
        references_of(found.references),
        found.guid and found.guid.lower(),
    )


async def _whole(session: _Session, registered: Registered) -> Schema:
    """`registered` with all that it refers to, which are asked for level by level. Raises InvalidSchema."""
    found: dict[tuple[str, int], Registered | None] = {}
    level: Sequence[Reference] = registered.references
    for _ in range(SCHEMA_DEPTH_MAX):
        wanted = {(each.subject, each.version) for each in level} - found.keys()
        if not wanted:
            break
        if len(found) + len(wanted) > SCHEMA_REFERENCES_MAX:
            raise InvalidSchema(f"it refers to more than {SCHEMA_REFERENCES_MAX} schemas")
        answers = await asyncio.gather(*(_version(session, *each) for each in wanted))
        found.update(zip(wanted, answers, strict=True))
        level = [each for answer in answers if answer is not None for each in answer.references]
    return resolved(registered, lambda subject, version: found.get((subject, version)))


def _subject(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"
