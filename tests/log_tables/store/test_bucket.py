"""Object stores alone: buckets that are gone, refuse, or ignore a condition."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from log_tables.errors import AlreadyExists, InvalidArgument, OutcomeUnknown, StoreUnavailable
from log_tables.store.store import open_store, overlap
from tests.kit.support import S3Server


def test_an_object_store_that_is_down_has_made_durable_what_it_showed(
    impostor: tuple[str, dict[int, int]],
) -> None:
    endpoint, statuses = impostor
    statuses.update(dict.fromkeys(range(100), 503))
    open_store("s3://bucket", impostor_options(endpoint), create=False).make_durable("topics/t/partition=0")


def test_an_object_store_is_found_by_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = s3.bucket("environment")
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)
    open_store(url).put("a", b"x")
    assert open_store(url, {"AWS_REGION": s3.region, "allow_http": "true", "timeout": "9s"}).get("a") == b"x"
    assert open_store(url).delta_location("t/0") == (f"{url}/t/0", {})


def test_a_bucket_that_is_gone_is_not_an_empty_one(s3: S3Server) -> None:
    store = open_store("s3://never-made", s3.options, create=False)
    for ask in (store.get, store.list_dirs, lambda path: store.put_new(path, b"")):
        with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
            ask("a")
    for write in (
        store.delete,
        lambda path: store.put(path, b""),
        lambda path: store.put_if_absent(path, b""),
    ):
        with pytest.raises(OutcomeUnknown, match="NoSuchBucket"):
            write("a")


def test_an_object_store_that_is_down_or_refuses_is_unavailable(s3: S3Server) -> None:
    url = s3.bucket("refused")
    store = open_store(url, {**s3.options, "aws_secret_access_key": "wrong"}, create=False)
    with pytest.raises(StoreUnavailable, match="403 Forbidden") as raised:
        store.get("a")
    assert "\n" not in raised.value.message
    with pytest.raises(StoreUnavailable):
        open_store(url, {**s3.options, "aws_secret_access_key": "wrong"})


@pytest.fixture
def impostor() -> Iterator[tuple[str, dict[int, int]]]:
    """An S3 server that answers every put as if it were the first; and the answers it shall give by turn.

    That of turn -1 is the number of DeleteObjects so far.
    """
    statuses: dict[int, int] = {}
    turns = count()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(statuses.get(next(turns), 200))
            self.send_header("ETag", '"0"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            statuses[-1] = statuses.get(-1, 0) + 1
            answer = b"<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", statuses
    server.shutdown()
    thread.join()
    server.server_close()


def impostor_options(endpoint: str) -> dict[str, str]:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "us-east-1"}
    return {"aws_endpoint": endpoint, "allow_http": "true", **keys}


@pytest.mark.parametrize("name", ["endpoint", "aws_endpoint", "AWS_ENDPOINT_URL"])
def test_an_endpoint_without_tls_has_to_be_meant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"region": "us-east-1", name: "http://127.0.0.1:1"}
    for given in ({}, {"allow_http": "false"}):
        with pytest.raises(InvalidArgument, match=r"127\.0\.0\.1:1 is not https; set the option allow_http"):
            open_store("s3://bucket", options | given, create=False)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    open_store("s3://bucket", options, create=False)


@pytest.mark.parametrize(("name", "value"), [("timeout", "soon"), ("AWS_SKIP_SIGNATURE", "maybe")])
def test_an_option_with_an_impossible_value_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f'"{value}" .*; check its option {name}$'):
        open_store("s3://bucket", {"region": "us-east-1", name: value}, create=False)


def test_only_variables_of_aws_name_an_endpoint_and_options_win_over_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ENDPOINT", "ENDPOINT_URL", "endpoint"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    open_store("s3://bucket", {"region": "us-east-1"}, create=False)
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:2")
    for name in ("endpoint", "AWS_ENDPOINT_URL"):
        open_store("s3://bucket", {"region": "us-east-1", name: "https://127.0.0.1:3"}, create=False)
    with pytest.raises(InvalidArgument, match=r"127\.0\.0\.1:2 is not https"):
        open_store("s3://bucket", {"region": "us-east-1"}, create=False)


def test_a_store_that_ignores_the_condition_of_a_put_is_refused(
    impostor: tuple[str, dict[int, int]],
) -> None:
    with pytest.raises(InvalidArgument, match="If-None-Match"):
        open_store("s3://bucket", impostor_options(impostor[0]))


def test_a_conditional_put_that_conflicts_may_have_left_nothing(impostor: tuple[str, dict[int, int]]) -> None:
    endpoint, statuses = impostor
    statuses.update({0: 409, 1: 412, 2: 503})
    store = open_store("s3://bucket", impostor_options(endpoint), create=False)
    for _ in range(2):
        with pytest.raises(AlreadyExists, match="object a already"):
            store.put_if_absent("a", b"x")
    store.put_if_absent("a", b"repeated out of sight")


def test_a_request_deletes_a_thousand_objects(impostor: tuple[str, dict[int, int]]) -> None:
    endpoint, counts = impostor
    store = open_store("s3://bucket", impostor_options(endpoint), create=False)
    store.delete_objects([f"t/{number}" for number in range(2_500)])
    assert counts == {-1: 3}


def test_a_bucket_has_one_identity_by_each_scheme_for_it(s3: S3Server) -> None:
    url = f"{s3.bucket('one-spelling')}/log"
    store, again = open_store(url, s3.options), open_store(url.replace("s3://", "s3a://"), s3.options)
    store.put("home/anchor", b"")
    assert again.identity("home/anchor") == store.identity("home/anchor")
    assert overlap(again.url, f"{store.url}/in-it")
