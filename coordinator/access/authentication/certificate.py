"""The subject of a client's certificate as Java prints it, so that Kafka's rules mean the same here, and the
user that it names by Kafka's `ssl.principal.mapping.rules` (KIP-371).

Patterns have RE2's syntax, as those of subscriptions do: no rule and no subject takes more than linear time.
"""

import re
from typing import TYPE_CHECKING, Any, NamedTuple

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


if TYPE_CHECKING:  # imported where it is used: without certificates no gateway loads it
    from cryptography.x509 import NameAttribute

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Those of RFC 2253, 2.3. Any other attribute is printed as its OID, with the bytes of its value."""

_TEXTS = {12, 19, 22}
"""Tags of UTF8String, PrintableString and IA5String: text that is UTF-8 as it stands."""

_ESCAPED = str.maketrans({char: f"\\{char}" for char in ',=+<>#;"\\'} | {"\0": "\\00"})


def subject(certificate: bytes) -> str | None:
    """The name of the subject of a DER certificate, as `X500Principal.getName` gives it (RFC 2253).

    None for a certificate that cannot be read, or whose subject is empty.
    """
    from cryptography.x509 import load_der_x509_certificate

    try:
        rdns = load_der_x509_certificate(certificate).subject.rdns
        # The last of a certificate is the first of a name (RFC 2253, 2.1).
        return ",".join("+".join(map(_printed, rdn)) for rdn in reversed(rdns)) or None
    except ValueError:
        return None


def _printed(attribute: "NameAttribute[Any]") -> str:
    oid = attribute.oid.dotted_string
    value = _value(attribute)
    if oid not in _KEYWORDS or value[0] not in _TEXTS:
        return f"{_KEYWORDS.get(oid, oid)}=#{value.hex()}"
    text = value[_content(value)].decode().translate(_ESCAPED)
    inner = text.strip(" \r")
    before, after = text[: len(text) - len(text.lstrip(" \r"))], text[len(text.rstrip(" \r")) :]
    if not inner:
        before, after = text, ""
    return f"{_KEYWORDS[oid]}={_each_escaped(before)}{inner}{_each_escaped(after)}"


def _each_escaped(spaces: str) -> str:
    return "".join(f"\\{space}" for space in spaces)


def _value(attribute: "NameAttribute[Any]") -> bytes:
    """The value of `attribute` in DER: what stands after its OID in a name that has nothing else."""
    from cryptography.x509 import Name

    pair = Name([attribute]).public_bytes()
    for _ in range(3):
        pair = pair[_content(pair)]
    return pair[_content(pair).stop :]


def _content(element: bytes) -> slice:
    """Where in a DER element its content stands (X.690, 8.1.3)."""
    if element[1] < 0x80:
        return slice(2, 2 + element[1])
    begin = 2 + element[1] - 0x80
    return slice(begin, begin + int.from_bytes(element[2:begin]))
