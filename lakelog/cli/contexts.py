"""Named gateways: where each is, and by which files a command logs in. No secret is kept, only where it is.

A context gives variables such as LAKELOG_URL the values that the environment does not. One is current, for
all shells of a user; LAKELOG_CONTEXT names another for one shell or one command.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from log_tables.errors import InvalidArgument
from log_tables.spelling import meant

VARIABLE = "LAKELOG_CONTEXT"

LOGIN = ("api_key_file", "ca_file", "certfile", "keyfile")
"""What a context says of logging in. It goes to the gateway of the context, and to no other."""


WITHOUT = ("context", "demo", "serve")
"""Commands that no context says anything to: a gateway is started where it is told to, and nowhere else."""


class Contexts(NamedTuple):
    """The contexts of a user, by name, and the one that is current; empty for none."""

    current: str
    by_name: Mapping[str, Mapping[str, str]]

    def named(self, name: str) -> Mapping[str, str]:
        """A context: `url`, `data` and LOGIN, as far as it has them. Raises InvalidArgument."""
        if name not in self.by_name:
            hint = meant(name, self.by_name) or "`lakelog context list` lists them"
            raise InvalidArgument(f"there is no context {name!r}; {hint}")
        return self.by_name[name]


def contexts_file() -> Path:
    """The file that has them."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "lakelog" / "contexts.json"


def load() -> Contexts:
    """The contexts of this user. Raises InvalidArgument for a file that has none."""
    file = contexts_file()
    try:
        found = json.loads(file.read_text("utf-8"))
        return Contexts(found["current"], {name: dict(each) for name, each in found["contexts"].items()})
    except FileNotFoundError:
        return Contexts("", {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"{file} holds no contexts ({type(error).__name__}: {error}); correct or delete it"
        ) from None


def save(contexts: Contexts) -> None:
    """Replace the file as a whole, so that another command reads the old ones or the new ones."""
    file = contexts_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = file.with_suffix(f".{os.getpid()}")
    made.write_text(json.dumps({"current": contexts.current, "contexts": contexts.by_name}, indent=2) + "\n")
    made.replace(file)


def chosen() -> str:
    """The context of this command: the one that LAKELOG_CONTEXT names, or the current one; empty for none."""
    return os.environ[VARIABLE] if VARIABLE in os.environ else load().current


def names_url() -> bool:
    """Whether LAKELOG_URL is what the context of this command says: no other login is meant for that."""
    name, url = chosen(), os.environ.get("LAKELOG_URL")
    return bool(name and url) and load().named(name).get("url") == url


@contextmanager
def applied(words: Sequence[str]) -> Iterator[str]:
    """The name of the context that a command with the arguments `words` has; meanwhile the variables hold
    what it says and nothing else has said. Raises InvalidArgument for a context that is not there.
    """
    name = "" if {*words[:1]} & {*WITHOUT} else chosen()
    if not name:
        yield ""
        return
    from lakelog.client.security_config import NAMES, PREFIX

    found = dict(load().named(name))
    elsewhere = os.environ.get(PREFIX + "URL") or any(word.split("=")[0] == "--url" for word in words)
    said = [PREFIX + each.upper() for each in NAMES if os.environ.get(PREFIX + each.upper())]
    if elsewhere:
        found = {key: value for key, value in found.items() if key not in (*LOGIN, "url")}
    elif said and "url" in found:
        raise InvalidArgument(
            f"context {name!r} is in use, and {said[0]} is set, which says not for which gateway; set "
            f"{PREFIX}URL as well, or unset it"
        )
    variables = {PREFIX + key.upper(): value for key, value in found.items()}
    added = {key: value for key, value in variables.items() if not os.environ.get(key)}
    os.environ.update(added)
    try:
        yield name
    finally:
        for key in added:
            del os.environ[key]
