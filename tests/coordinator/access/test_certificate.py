"""The subjects of certificates, as Java prints them: each name here was printed by Java 17's X500Principal.

3,000 random subjects were printed alike when this was written.
"""

from datetime import datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import (
    CertificateBuilder,
    Name,
    NameAttribute,
    ObjectIdentifier,
    RelativeDistinguishedName,
)
from cryptography.x509.oid import NameOID

from coordinator.access.authentication.certificate import subject

KEY = generate_private_key(SECP256R1())
CN, ORG, OU, C = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
)


def certificate(*rdns: list[NameAttribute[str]]) -> bytes:
    """A certificate in DER, whose subject has these RDNs in this order."""
    begin = datetime(2026, 1, 1)  # noqa: DTZ001 -- X.509 has UTC only
    builder = CertificateBuilder(
        Name([NameAttribute(CN, "ca")]),
        Name(map(RelativeDistinguishedName, rdns)),
        KEY.public_key(),
        1,
        begin,
        begin + timedelta(days=1),
    )
    return builder.sign(KEY, SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("rdns", "printed"),
    [
        ([[(C, "DE")], [(ORG, "Air")], [(CN, "ann")]], "CN=ann,O=Air,C=DE"),
        ([[(CN, "Zoë 𝄞")]], "CN=Zoë 𝄞"),
        ([[(ORG, 'a,b+c"d\\e<f>g;h=i#j')]], 'O=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        ([[(ORG, "  a b  ")]], "O=\\ \\ a b\\ \\ "),
        ([[(ORG, "   ")]], "O=\\ \\ \\ "),
        ([[(ORG, "a\0b\tc")]], "O=a\\00b\tc"),
        ([[(CN, "ann"), (NameOID.USER_ID, "7")], [(OU, "x")]], "OU=x,CN=ann+UID=7"),
        (
            [[(NameOID.DOMAIN_COMPONENT, "com")], [(NameOID.DOMAIN_COMPONENT, "example")]],
            "DC=example,DC=com",
        ),
        (
            [
                [(NameOID.LOCALITY_NAME, "l")],
                [(NameOID.STATE_OR_PROVINCE_NAME, "st")],
                [(NameOID.STREET_ADDRESS, "s")],
            ],
            "STREET=s,ST=st,L=l",
        ),
        (
            [[(NameOID.EMAIL_ADDRESS, "a@b.c")], [(CN, "ann")]],
            "CN=ann,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        ([[(NameOID.SERIAL_NUMBER, "12")], [(NameOID.TITLE, "é")]], "2.5.4.12=#0c02c3a9,2.5.4.5=#13023132"),
        ([[(NameOID.TITLE, "a" * 60 + "é" * 60)]], "2.5.4.12=#0c81b4" + "61" * 60 + "c3a9" * 60),
    ],
)
def test_a_subject_is_printed_as_java_does(
    rdns: list[list[tuple[ObjectIdentifier, str]]], printed: str
) -> None:
    attributes = [[NameAttribute(oid, value) for oid, value in rdn] for rdn in rdns]
    assert subject(certificate(*attributes)) == printed


def test_a_certificate_without_a_subject_names_nobody() -> None:
    assert subject(certificate()) is None


def test_bytes_that_are_no_certificate_name_nobody() -> None:
    whole = certificate([NameAttribute(CN, "ann")])
    assert [subject(whole[:size]) for size in range(0, len(whole), 20)] == [None] * len(
        range(0, len(whole), 20)
    )
