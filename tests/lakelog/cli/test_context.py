"""`lakelog context`: named gateways, and what a command takes of the one that is current."""

import json
from pathlib import Path

import pytest

from lakelog.cli.common import security_options
from lakelog.cli.contexts import applied, contexts_file
from log_tables.errors import InvalidArgument
from tests.kit.cli import UNREACHABLE, USAGE, Run, lines, printed, wrong
from tests.kit.gateway import RunningGateway
from tests.kit.support import free_port

LOGIN = ("LAKELOG_API_KEY", "LAKELOG_API_KEY_FILE", "LAKELOG_USER", "LAKELOG_PASSWORD", "LAKELOG_CA_FILE")


@pytest.fixture(autouse=True)
def _home(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without contexts, in whose environment nothing is said."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("LAKELOG_CONTEXT", "LAKELOG_URL", "LAKELOG_DATA", *LOGIN):
        monkeypatch.delenv(name, raising=False)


def test_a_command_asks_the_gateway_of_the_current_context(
    run: Run, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("context", "set", "test", "--url", gateway.url)
    run("context", "set", "away", "--url", f"http://127.0.0.1:{free_port()}")
    assert lines(run("context", "use", "test")) == [f"using context test: {gateway.url}"]
    assert run("topic", "list").exit_code == 0
    (first, _) = printed(run("context", "list", "--json"))
    assert first == {"name": "test", "current": True, "url": gateway.url}
    monkeypatch.setenv("LAKELOG_CONTEXT", "away")
    wrong(run("topic", "list"), UNREACHABLE, "(context away)")
    assert run("topic", "list", "--url", gateway.url).exit_code == 0
    monkeypatch.setenv("LAKELOG_CONTEXT", "")
    assert "*" not in run("context", "list").stdout
    monkeypatch.delenv("LAKELOG_CONTEXT")
    run("context", "use", "away")
    assert run("topic", "list").exit_code == UNREACHABLE
    assert lines(run("context", "leave")) == ["using no context"]
    run("context", "use", "away")
    assert lines(run("context", "remove", "away")) == ["removed context away"]
    assert json.loads(contexts_file().read_text())["current"] == ""


def test_sql_reads_the_root_of_the_context(run: Run, root: Path) -> None:
    run("context", "set", "here", "--data", str(root))
    run("context", "use", "here")
    assert "sales" in run("sql", "SHOW TABLES").stdout


def test_a_credential_goes_to_no_other_gateway(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    def found(*words: str) -> list[str | None]:
        with applied(words):
            return [os.environ.get("LAKELOG_URL"), os.environ.get("LAKELOG_API_KEY_FILE")]

    run("context", "set", "prod", "--url", "http://prod:1/", "--api-key-file", "/key")
    run("context", "use", "prod")
    assert found("topic", "list") == ["http://prod:1", "/key"]
    assert found("topic", "list", "--url=http://other") == [None, None]
    assert found("serve") == [None, None]
    monkeypatch.setenv("LAKELOG_URL", "http://other")
    assert found("topic", "list") == ["http://other", None]
    monkeypatch.delenv("LAKELOG_URL")
    monkeypatch.setenv("LAKELOG_API_KEY", "a.b")
    with pytest.raises(InvalidArgument, match="LAKELOG_API_KEY is set, which says not for which gateway"):
        found("topic", "list")
    wrong(run("context", "set", "prod", "--url", ""), USAGE, "would log in at no gateway")
    assert not {*os.environ} & {"LAKELOG_URL", "LAKELOG_API_KEY_FILE"}


def test_a_key_of_the_settings_file_does_not_go_to_the_gateway_of_a_context(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lakelog.toml").write_text('[client]\napi_key = "a.b"\n')
    run("context", "set", "prod", "--url", "http://prod:1/")
    run("context", "use", "prod")
    with applied(("topic", "list")):
        assert security_options().get("credential") is None
    with applied(("topic", "list", "--url=http://other")):
        assert security_options().get("credential") is not None


def test_a_context_that_is_not_there_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("context", "set", "prod", "--url", "http://127.0.0.1:1")
    wrong(run("context", "use", "prdo"), USAGE, "there is no context 'prdo'; did you mean prod?")
    wrong(run("context", "set", "new"), USAGE, "name its --url")
    wrong(run("context", "set", "new", "--url", "prod"), USAGE, "'prod' is not the URL of a gateway")
    monkeypatch.setenv("LAKELOG_CONTEXT", "x")
    wrong(run("topic", "list"), USAGE, "`lakelog context list` lists them")
    assert "prod" in run("context", "list").stdout
    contexts_file().write_text("{")
    monkeypatch.delenv("LAKELOG_CONTEXT")
    wrong(run("topic", "list"), USAGE, "holds no contexts")
