"""Credentials of commands: from variables or a settings file, never from a flag, and never shown."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from ingest.settings import load_settings
from lakelog.cli.common import DENIED, WRONG
from log_tables.errors import InvalidConfig
from tests.kit.cli import printed
from tests.kit.cli import wrong as refused
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured
from tests.lakelog.cli.test_exit_code import commands, options

CANARY = "canary-7c1d"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def key(secured: Secured) -> str:
    return secured.key()


@pytest.fixture(scope="module")
def gateway(secured: Secured, key: str) -> Iterator[RunningGateway]:
    """A gateway that authenticates its clients; the tests here run commands against it."""
    secured.user("alice", "a secret")
    url = secured.cluster.store.url
    with running_gateway(url, authentication_methods="api-key,scram", linger_ms=0) as running:
        yield running


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: an empty one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_key_a_file_a_user_and_a_settings_file_let_in(
    run: Callable[..., Result], key: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "key").write_text(key)
    user, password = key.split(".")
    variables = ({"API_KEY": key}, {"API_KEY_FILE": "key"}, {"USER": user, "PASSWORD": password})
    for given in variables:
        with monkeypatch.context() as patch:
            for name, value in given.items():
                patch.setenv(f"LAKELOG_{name}", value)
            assert isinstance(printed(run("topic", "list", "--json")), list)
    (directory / "lakelog.toml").write_text('[client]\napi_key_file = "key"\n')
    assert isinstance(printed(run("topic", "list", "--json")), list)
    monkeypatch.setenv("LAKELOG_API_KEY", "wins.wrongly")
    assert run("topic", "list").exit_code == DENIED


def test_every_command_that_writes_and_reads_sends_it(
    run: Callable[..., Result], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKELOG_API_KEY", key)
    done = [
        run("topic", "create", "sales"),
        run("produce", "sales", stdin=b"a line\n"),
        run("consume", "sales"),
        run("consume", "sales", "--group", "readers", "--from", "earliest"),
        run("group", "list"),
        run("broker", "list"),
        run("bench", "--records", "10", "--seconds", "1", "--json"),
    ]
    assert [each.exit_code for each in done] == [0] * len(done), [each.output for each in done]
    assert [each.stdout for each in done[2:4]] == ["a line\n"] * 2


def test_without_a_right_one_a_command_says_what_to_set(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(run("topic", "list"), DENIED, "set LAKELOG_API_KEY_FILE, or LAKELOG_API_KEY, or LAKELOG_USER")
    monkeypatch.setenv("LAKELOG_USER", "alice")
    refused(run("topic", "list"), WRONG, "there is LAKELOG_USER; set LAKELOG_API_KEY, or")
    monkeypatch.setenv("LAKELOG_PASSWORD", "a secret")
    refused(run("topic", "create", "mine"), DENIED, "User:alice may not CREATE TOPIC 'mine'")


def test_no_output_shows_a_credential(
    run: Callable[..., Result], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for names in (("API_KEY",), ("USER", "PASSWORD")):
        with monkeypatch.context() as patch:
            for name in names:
                patch.setenv(f"LAKELOG_{name}", f"{name}.{CANARY}")
            said += [run("topic", "list"), run("topic", "list", "--json"), run("consume", "sales", "--json")]
    for text in (f'api_key = "two {CANARY}"', f'api_key = ["{CANARY}"]', f'apikey = "{CANARY}"'):
        (directory / "lakelog.toml").write_text(f"[client]\n{text}\n")
        said += [run("topic", "list"), run("topic", "list", "--json")]
    assert not [each.output for each in said if CANARY in each.output]
    assert {each.exit_code for each in said} == {DENIED, WRONG}


def test_no_command_has_a_flag_for_one() -> None:
    names = {option.name for _, function in commands() for option in options(function)}
    assert not names & {"api_key", "user", "password", "secret", "token", "credential"}


def test_settings_show_no_credential(directory: Path) -> None:
    (directory / "lakelog.toml").write_text(f'[client]\nuser = "a"\npassword = "{CANARY}"\n')
    settings = load_settings(None)
    assert CANARY not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert settings.client.plain()["password"] == CANARY
    with pytest.raises(InvalidConfig) as error:
        load_settings(None, client={"password": [CANARY]})
    assert CANARY not in str(error.value)
