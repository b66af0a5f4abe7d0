"""Passwords as SCRAM keeps them (RFC 5802, RFC 7677, KIP-84): salted, slow to guess, good for SASL and Basic.

Passwords are prepared by SASLprep (RFC 4013). Kafka's Java client sends a password as it is typed, which is
the same for ASCII and for most of what is typed elsewhere.

Among users as of one moment, a name that does not exist looks like one that does.
"""

import hashlib
import hmac
import string
import stringprep
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple, Self

from coordinator.access.principal import USER, check_user
from log_tables.clock import Clock
from log_tables.cluster.credential import ScramCredential, ScramUserRecord
from log_tables.errors import InvalidArgument
from log_tables.limits import (
    PASSWORD_MAX_CHARS,
    PASSWORD_MIN_CHARS,
    SCRAM_ITERATIONS_MAX,
    SCRAM_ITERATIONS_MIN,
)

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""By the name of a mechanism the name of its hash."""

ITERATIONS_MIN, ITERATIONS_MAX = SCRAM_ITERATIONS_MIN, SCRAM_ITERATIONS_MAX
"""Kafka's bounds (KIP-554). New passwords get the maximum: a check, or a guess, takes milliseconds."""

_SALT_DIGITS = 64

SALT_MIN_BYTES, SALT_MAX_BYTES = 4, 256
"""Of a salt that a client has made: Kafka's tools take 26 bytes or so, and its clients let people choose."""

_LETTERS = (string.digits + string.ascii_lowercase).encode()
"""Of a salt that Kafka's tools make: it is a random number in the base 36."""

_FORBIDDEN = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)
"""Tables of characters that no prepared text has (RFC 4013, 2.3 and 2.5)."""


def prepared(text: str) -> str | None:
    """`text` after SASLprep as a stored string, or None where it forbids a character of `text`."""
    kept = (char for char in text if not stringprep.in_table_b1(char))
    spaced = "".join(" " if stringprep.in_table_c12(char) else char for char in kept)
    normal = unicodedata.normalize("NFKC", spaced)
    if any(forbidden(char) for char in normal for forbidden in _FORBIDDEN) or not _one_way(normal):
        return None
    return normal


def _one_way(text: str) -> bool:
    """Whether text from right to left is not mixed with other text (RFC 3454, 6)."""
    if not any(map(stringprep.in_table_d1, text)):
        return True
    mixed = any(map(stringprep.in_table_d2, text))
    return not mixed and stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])


def new_scram_user(
    name: str, password: str, clock: Clock, iterations: int = ITERATIONS_MAX, mechanisms: tuple[str, ...] = ()
) -> ScramUserRecord:
    """The record of a user with `password`, for `mechanisms` or for all. Raises InvalidArgument."""
    check_scram_name(name)
    _check_iterations(iterations)
    if unknown := set(mechanisms) - set(MECHANISMS):
        raise InvalidArgument(f"mechanism {min(unknown)!r}: name one of {', '.join(MECHANISMS)}")
    plain = prepared(password) if len(password) <= PASSWORD_MAX_CHARS else None
    if plain is None:
        raise InvalidArgument(
            f"the password is longer than {PASSWORD_MAX_CHARS} characters, or has a character that SASLprep "
            "(RFC 4013) forbids; take another one"
        )
    if len(plain) < PASSWORD_MIN_CHARS:
        raise InvalidArgument(
            f"the password has {len(plain)} characters; take another one, of {PASSWORD_MIN_CHARS} at least, "
            "better of 15"
        )
    return ScramUserRecord(
        name,
        {
            mechanism: scram_credential(
                mechanism, password, bytes.fromhex(clock.random_hex(_SALT_DIGITS)), iterations
            )
            for mechanism in mechanisms or MECHANISMS
        },
    )


def check_scram_name(name: str) -> None:
    """Raise InvalidArgument unless a user with a password can have this name."""
    check_user(USER + name)
    if ":" in name:
        raise InvalidArgument(
            f"the name {name[:100]!r} has a colon, at which Basic ends a name; take another"
        )


def _check_iterations(iterations: int) -> None:
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidArgument(
            f"iterations = {iterations}: SCRAM takes {ITERATIONS_MIN} to {ITERATIONS_MAX} of them"
        )


def salted_credential(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password that a client has salted (KIP-554): how long it is, nobody can tell.

    Raises InvalidArgument for what `mechanism`, which is known, does not make of a password.
    """
    _check_iterations(iterations)
    if not SALT_MIN_BYTES <= len(salt) <= SALT_MAX_BYTES:
        raise InvalidArgument(
            f"the salt has {len(salt)} bytes; take a random one of {SALT_MIN_BYTES} to {SALT_MAX_BYTES}"
        )
    size = hashlib.new(MECHANISMS[mechanism]).digest_size
    if len(salted) != size:
        raise InvalidArgument(
            f"the salted password has {len(salted)} bytes, and {mechanism} makes {size}; salt it by "
            f"PBKDF2 with {MECHANISMS[mechanism]} (RFC 5802, 2.2)"
        )
    return _verifiers(mechanism, salted, salt, iterations)


def scram_credential(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """StoredKey and ServerKey of `password` (RFC 5802, 3); it takes the time of `iterations` hashes."""
    digest = MECHANISMS[mechanism]
    # A forbidden text is no password of anybody; that it takes the same time tells nobody so.
    plain = (prepared(password) or password).encode(errors="surrogatepass")
    return _verifiers(mechanism, hashlib.pbkdf2_hmac(digest, plain, salt, iterations), salt, iterations)


def _verifiers(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    digest = MECHANISMS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", digest)
    server_key = hmac.digest(salted, b"Server Key", digest)
    return ScramCredential(salt, iterations, hashlib.new(digest, client_key).digest(), server_key)


def is_password(mechanism: str, credential: ScramCredential, password: str) -> bool:
    """Whether `credential` is one of `password`, which HTTP Basic brings in the open."""
    offered = scram_credential(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(offered.stored_key, credential.stored_key)


class _Shape(NamedTuple):
    """The part of a credential that anybody sees before a password is proven: it tells who has made it.

    `begins` is the first letter of a salt of letters: those of a number are not all as frequent there. It is
    empty for a salt of any bytes.
    """

    iterations: int = ITERATIONS_MAX
    salt_bytes: int = _SALT_DIGITS // 2
    begins: bytes = b""

    @classmethod
    def of(cls, kept: ScramCredential) -> Self:
        begins = b"" if kept.salt.strip(_LETTERS) else kept.salt[:1]
        return cls(kept.iterations, len(kept.salt), begins)

    def salt(self, seed: bytes) -> bytes:
        """A salt of this shape, always the same for `seed`."""
        drawn = hashlib.shake_256(seed).digest(self.salt_bytes)
        if not self.begins:
            return drawn
        return self.begins + bytes(_LETTERS[each % len(_LETTERS)] for each in drawn[1:])


class ScramUsers:
    """Immutable. `key` is secret, and from it come the salts of names that do not exist."""

    def __init__(self, records: Mapping[str, ScramUserRecord], key: bytes) -> None:
        self._records, self._key = records, key
        self._shapes = {
            mechanism: sorted({_Shape.of(user.mechanisms[mechanism]) for user in able}) or [_Shape()]
            for mechanism in MECHANISMS
            for able in [[user for user in records.values() if mechanism in user.mechanisms]]
        }
        preferred = {mechanism_of(user) for user in records.values() if user.mechanisms}
        self._preferred = sorted(preferred) or [next(iter(MECHANISMS))]

    def get(self, name: str) -> ScramUserRecord | None:
        return self._records.get(name)

    def for_password(self, name: str) -> tuple[str, ScramCredential]:
        """A mechanism and a credential that a password of `name` is compared with."""
        user = self._records.get(name)
        if user and user.mechanisms:
            mechanism = mechanism_of(user)
        else:
            mechanism = self._preferred[self._pick(name, len(self._preferred))]
        return mechanism, self.credential(name, mechanism)

    def credential(self, name: str, mechanism: str) -> ScramCredential:
        """The credential of `name`, or one that no password is right for, and that is the same each time."""
        user = self._records.get(name)
        if user and mechanism in user.mechanisms:
            return user.mechanisms[mechanism]
        seed, shapes = self._digest(f"{mechanism} {name}"), self._shapes[mechanism]
        shape = shapes[self._pick(name, len(shapes))]
        return ScramCredential(shape.salt(seed), shape.iterations, b"", b"")

    def _pick(self, name: str, choices: int) -> int:
        """One of `choices` numbers, always the same for a name."""
        return int.from_bytes(self._digest(name)) % choices

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(errors="surrogatepass"), "sha256")


def mechanism_of(user: ScramUserRecord) -> str:
    """The mechanism by which a password of `user` is checked: the first that there is."""
    return next(mechanism for mechanism in MECHANISMS if mechanism in user.mechanisms)
