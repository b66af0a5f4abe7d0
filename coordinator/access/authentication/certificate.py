"""The subject of a client's certificate as Java prints it, so that Kafka's rules mean the same here."""

from typing import TYPE_CHECKING, Any

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
