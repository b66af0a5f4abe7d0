"""Settings: where they come from, who wins, and what a mistake says."""

import re
from pathlib import Path

import pytest
from pydantic import ByteSize

from ingest.settings import Settings, load_settings
from log_tables.errors import InvalidConfig
from log_tables.limits import MIB
from tests.kit.support import ROOT

OPERATING = ROOT / "docs" / "operating.md"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (*Settings.model_fields, "config"):
        monkeypatch.delenv(f"LAKELOG_{name.upper()}", raising=False)


def test_the_defaults_need_no_file() -> None:
    assert load_settings() == Settings()


def test_the_file_loses_to_the_environment_which_loses_to_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("lakelog.toml").write_text("port = 1\nhost = 'file'\nlinger_ms = 1.5\n")
    monkeypatch.setenv("LAKELOG_PORT", "2")
    monkeypatch.setenv("LAKELOG_HOST", "environment")
    settings = load_settings(port=3, data=None)
    assert (settings.port, settings.host, settings.linger_ms) == (3, "environment", 1.5)
    assert settings.data == Settings().data


def test_a_list_is_written_with_commas_where_there_are_no_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a.example", "*", "::1")
    Path("lakelog.toml").write_text("allowed_hosts = ['a.example', '*', '::1']")
    assert load_settings().allowed_hosts == names
    monkeypatch.setenv("LAKELOG_ALLOWED_HOSTS", "a.example, *,::1")
    Path("lakelog.toml").unlink()
    assert (
        load_settings().allowed_hosts == load_settings(allowed_hosts="a.example,*,::1").allowed_hosts == names
    )


def test_a_named_file_wins_over_the_one_in_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("lakelog.toml").write_text("port = 1")
    Path("other.toml").write_text("port = 2")
    Path("third.toml").write_text("port = 3")
    monkeypatch.setenv("LAKELOG_CONFIG", "other.toml")
    assert load_settings().port == 2
    assert load_settings("third.toml").port == 3


def test_sizes_take_units_and_tables_are_json_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKELOG_BUFFER_MEMORY", "64 MiB")
    monkeypatch.setenv("LAKELOG_STORE_OPTIONS", '{"region": "eu-central-1"}')
    settings = load_settings()
    assert settings.buffer_memory == 64 * 1024 * 1024
    assert settings.store_options == {"region": "eu-central-1"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("linger = 5", "unknown setting linger (file); did you mean linger_ms?"),
        ("zzz = 'x'", "unknown setting zzz (file); docs/operating.md"),
        ("peer_secret = 'x'\npeer_secret_file = 'y'", "peer_secret and peer_secret_file are both set"),
        ("port = 70000", "setting port = 70000 (file): "),
        ("port = 'eighty'", "setting port = 'eighty' (file): "),
        ("connections_max_idle_ms = 3999", "setting connections_max_idle_ms = 3999 (file): "),
        ("linger_ms = -1", "setting linger_ms = -1 (file): "),
        ("buffer_memory = '1 parsec'", "setting buffer_memory = '1 parsec' (file): "),
        ("log_level = 'loud'", "setting log_level = 'loud' (file): "),
        ("advertised_url = 'here'", "setting advertised_url = 'here' (file): "),
        ("allowed_hosts = ['a:80']", "setting allowed_hosts = 'a:80' (file): "),
        ("allowed_hosts = 'http://a'", "setting allowed_hosts = 'http://a' (file): "),
        ("buffer_memory = '1 MiB'", "max_request_bytes (33554432) is more than buffer_memory"),
        ("port = ", "settings file lakelog.toml is not TOML: "),
    ],
)
def test_a_mistake_in_the_file_names_the_setting_and_the_value(text: str, says: str) -> None:
    Path("lakelog.toml").write_text(text)
    with pytest.raises(InvalidConfig, match=re.escape(says)):
        load_settings()


def test_a_mistake_elsewhere_names_where_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig, match=re.escape("setting port = -1 (flag)")):
        load_settings(port=-1)
    with pytest.raises(InvalidConfig, match=re.escape("settings file nowhere.toml")):
        load_settings("nowhere.toml")
    monkeypatch.setenv("LAKELOG_PORT", "tcp://10.0.0.1:8082")
    with pytest.raises(InvalidConfig, match=re.escape("port = 'tcp://10.0.0.1:8082' (environment)")):
        load_settings()


def test_a_mistake_in_the_store_options_does_not_show_secrets() -> None:
    with pytest.raises(InvalidConfig) as raised:
        load_settings(store_options={"secret_access_key": 12345})
    assert "12345" not in raised.value.message
    assert "hush" not in repr(Settings(store_options={"secret_access_key": "hush"}))


def test_a_switch_of_the_store_is_text_or_true(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAKELOG_STORE_OPTIONS", '{"allow_http": true, "region": "eu"}')
    assert load_settings().store_options == {"allow_http": "true", "region": "eu"}
    monkeypatch.delenv("LAKELOG_STORE_OPTIONS")
    (tmp_path / "a.toml").write_text('store_options = {allow_http = false, timeout = "9s"}')
    assert load_settings(str(tmp_path / "a.toml")).store_options == {"allow_http": "false", "timeout": "9s"}


def shown(default: object) -> str:
    """A default as the page writes it; empty for one that is described in words."""
    match default:
        case bool():
            return str(default).lower()
        case ByteSize() if default:
            unit, name = (MIB * 1024, "GiB") if default % (MIB * 1024) == 0 else (MIB, "MiB")
            return f"{default // unit} {name}"
        case tuple():
            return ", ".join(default)
        case str() | int() | float():
            return str(default)
    return ""


def test_every_setting_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| ", OPERATING.read_text("utf-8"), re.MULTILINE)
    documented = {name: cell.replace("`", "") for name, cell in rows if name in Settings.model_fields}
    assert documented.keys() == Settings.model_fields.keys()
    defaults = {name: shown(field.default) for name, field in Settings.model_fields.items()}
    assert {name: documented[name] for name, default in defaults.items() if default} == {
        name: default for name, default in defaults.items() if default
    }


def test_times_and_sizes_take_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOG_AUDIT_RETENTION_MS", "30d")
    settings = load_settings(
        None, maintain_interval_ms="5m", audit_retention_bytes="1GiB", sql_memory="512 MiB"
    )
    assert (settings.audit_retention_ms, settings.maintain_interval_ms) == (30 * 86_400_000, 300_000)
    assert (settings.audit_retention_bytes, settings.sql_memory) == (2**30, 2**29)
    with pytest.raises(InvalidConfig, match="maintain_interval_ms"):
        load_settings(None, maintain_interval_ms="5 parsecs")
