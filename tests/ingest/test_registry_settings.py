"""The registries that a process may ask, and how their credentials are read and hidden."""

import json
import os
from pathlib import Path

import pytest

from ingest.registry_settings import registry_accesses
from ingest.settings import load_settings
from log_tables.errors import InvalidConfig
from log_tables.schemas.registry_client import RegistryAccess

CANARY = "canary-of-the-registry"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LAKELOG_")]:
        monkeypatch.delenv(name)


def read(text: str) -> tuple[RegistryAccess, ...]:
    Path("lakelog.toml").write_text(text)
    return registry_accesses(load_settings().schema_registries)


def test_registries_are_a_table_by_their_urls() -> None:
    found = read(
        '[schema_registries."http://127.0.0.1:8081/"]\n'
        '[schema_registries."https://Registry.example"]\nuser = "ann"\npassword = "x"\ntimeout_ms = 500'
    )
    assert found == (
        RegistryAccess("http://127.0.0.1:8081"),
        RegistryAccess("https://registry.example", "ann", "x", timeout_s=0.5),
    )


def test_they_are_json_in_the_environment_and_go_on_to_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"https://r": {"token": CANARY, "timeout_ms": 2000}}
    monkeypatch.setenv("LAKELOG_SCHEMA_REGISTRIES", json.dumps(given))
    settings = load_settings()
    assert {url: each.as_json() for url, each in settings.schema_registries.items()} == given
    assert CANARY not in repr(settings)
    assert CANARY not in repr(registry_accesses(settings.schema_registries))


@pytest.mark.parametrize(
    ("url", "table", "says"),
    [
        ("files", "", "is no URL; write it as https://HOST:PORT"),
        ("ftp://r", "", "is no place of schemas"),
        (f"https://ann:{CANARY}@r", "", "is no place of schemas"),
        ("https://r", f'password = "{CANARY}"', "a user needs a password"),
        ("https://r", 'user = "ann"', "a user needs a password"),
        ("https://r", f'token = "{CANARY}"\ntoken_file = "f"', "there is token and token_file; set one"),
        ("http://r", f'token = "{CANARY}"', "would be read on their way; use https"),
        ("https://r", "timeout_ms = 1", "timeout_ms"),
        ("https://r", f'pasword = "{CANARY}"', "pasword"),
        ("https://r", 'token_file = "none"', "token_file none cannot be read"),
        ("https://r", 'ca_file = "none"', "ca_file none cannot be read"),
    ],
)
def test_a_mistake_is_named_and_no_secret(url: str, table: str, says: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        read(f'[schema_registries."{url}"]\n{table}')
    assert says in raised.value.message
    assert CANARY not in raised.value.message


def test_a_file_that_others_may_read_is_refused() -> None:
    Path("token").write_text(CANARY)
    Path("token").chmod(0o640)
    text = '[schema_registries."https://r"]\ntoken_file = "token"'
    with pytest.raises(InvalidConfig, match="others may read it; run `chmod 600` on it"):
        read(text)
    Path("token").chmod(0o600)
    (found,) = read(text)
    assert found.headers() == {"Authorization": f"Bearer {CANARY}"}


def test_no_flag_holds_them() -> None:
    with pytest.raises(InvalidConfig, match="every user of the machine sees flags"):
        load_settings(None, schema_registries={"https://r": {"token": CANARY}})
