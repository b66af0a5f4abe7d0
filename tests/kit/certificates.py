"""Authorities, and the certificates that they sign, in files, as operators and clients have them."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from log_tables.clock import SystemClock

_OIDS = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME}


class Pair(NamedTuple):
    """The files of a certificate and its key, in PEM."""

    certfile: str
    keyfile: str


class Authority:
    """An authority that signs certificates; its own certificate is in the file `ca_file`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory, self._key = directory, ec.generate_private_key(ec.SECP256R1())
        self._name = _named({"CN": name})
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = self._signed(self._name, self._key.public_key(), (-1, 30), constraints)
        self.ca_file = str(directory / f"{name}.pem")
        Path(self.ca_file).write_bytes(made)

    def pair(
        self,
        file: str,
        host: str = "127.0.0.1",
        days: tuple[int, int] = (-1, 30),
        password: str = "",
        **subject: str,
    ) -> Pair:
        """A certificate for `host`, an address or a name, and for `subject` (CN, O, OU); valid within `days`
        from now. Files that are there are replaced, the certificate first.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            named: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            named = x509.DNSName(host)
        hosts = x509.SubjectAlternativeName([named])
        made = self._signed(_named(subject or {"CN": file}), key.public_key(), days, hosts)
        encryption: serialization.KeySerializationEncryption = (
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption()
        )
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        pair = Pair(str(self._directory / f"{file}.crt"), str(self._directory / f"{file}.key"))
        Path(pair.certfile).write_bytes(made)
        Path(pair.keyfile).write_bytes(key.private_bytes(pem, pkcs8, encryption))
        return pair

    def trusted(self, pair: Pair | None = None) -> ssl.SSLContext:
        """A client that trusts this authority, and shows the certificate of `pair`."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if pair is not None:
            context.load_cert_chain(*pair)
        return context

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        days: tuple[int, int],
        extension: x509.ExtensionType,
    ) -> bytes:
        now = dt.datetime.fromtimestamp(SystemClock().now_ms() / 1000, dt.UTC)
        first, last = (now + dt.timedelta(days=day) for day in days)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(first).not_valid_after(last)
        made = builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM)


def _named(subject: dict[str, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(_OIDS[kind], value) for kind, value in subject.items()])
