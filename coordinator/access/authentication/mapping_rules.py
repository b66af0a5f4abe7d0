"""From the subject of a client's certificate to a user, by Kafka's `ssl.principal.mapping.rules` (KIP-371).

Patterns have RE2's syntax, as those of subscriptions do: no rule and no subject takes more than linear time.
"""

import re
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.access.principal import is_name
from log_tables.errors import InvalidConfig
from log_tables.record import binary_array

DEFAULT_RULES = "DEFAULT"

SUBJECT_MAX_CHARS = 2_048

_RULE = re.compile(r"\s*(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|$)")
_REPLACED = re.compile(r"\\(.)|\$([0-9])", re.DOTALL)


class _Rule(NamedTuple):
    pattern: str
    replacement: str
    case: str

    @property
    def whole(self) -> str:
        return rf"\A(?:{self.pattern})\z"


class PrincipalMappingRules:
    """The rules of a setting, such as `RULE:^CN=(.*?),.*$/$1/L, DEFAULT`: the first that matches is taken.

    A pattern matches a whole subject; its replacement has `$1` for a group; `L` and `U` set the case. DEFAULT
    is the subject itself. Raises InvalidConfig.
    """

    def __init__(self, text: str = DEFAULT_RULES) -> None:
        self._rules, start = list[_Rule | None](), 0
        while start < len(text.rstrip()):
            found = _RULE.match(text, start)
            if found is None:
                raise InvalidConfig(
                    f"ssl_principal_mapping_rules: {text[start : start + 100]!r} is no rule; write "
                    "RULE:pattern/replacement/, with L or U after it, or DEFAULT"
                )
            self._rules.append(None if found[1] is None else _rule(*found.groups()))
            start = found.end()

    def user(self, subject: str) -> str | None:
        """The name of the user with this subject, or None where no rule gives one."""
        if len(subject) > SUBJECT_MAX_CHARS or not subject.isprintable():
            return None
        results = (subject if rule is None else _applied(rule, subject) for rule in self._rules)
        name = next((name for name in results if name is not None), None)
        return name if is_name(name) else None


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    rule = _Rule(pattern, _REPLACED.sub(_rewritten, replacement), case)
    try:
        pc.match_substring_regex(_column(""), pattern)  # "a)|(b" is one only within the brackets
        pc.replace_substring_regex(_column(""), rule.whole, rule.replacement)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        said = str(error).partition(": ")[2]
        raise InvalidConfig(
            f"ssl_principal_mapping_rules: RULE:{pattern}/{replacement}/ does not work ({said[:200]}); "
            "use RE2's syntax, and groups that the pattern has"
        ) from None
    return rule


def _rewritten(part: re.Match[str]) -> str:
    """A part of a replacement as RE2 writes it: Java's references begin with `$`, and any char is escaped."""
    if part[2]:
        return f"\\{part[2]}"
    return part[0] if part[1] == "\\" else part[1]


def _applied(rule: _Rule, subject: str) -> str | None:
    column = _column(subject)
    if not pc.match_substring_regex(column, rule.whole)[0].as_py():
        return None
    name: str = pc.replace_substring_regex(column, rule.whole, rule.replacement)[0].as_py()
    return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)


def _column(text: str) -> pa.Array:
    """`text` in Arrow. Not by `pa.array`, which imports pandas where it is installed."""
    return binary_array([text.encode()]).view(pa.string())
