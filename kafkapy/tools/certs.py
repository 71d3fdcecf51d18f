"""`kafkapy certs`: an authority and certificates for development, in one directory.

    ca.pem, ca-key.pem          the authority: its certificate, its key
    NAME.pem, NAME.p12          a broker or a client: key and certificate chain; the second for older Java clients
    truststore.p12              the authority's certificate, for older Java clients
    passwords.properties        the password of the .p12 files
    broker.properties           lines for the broker's server.properties
    NAME.properties             lines for the client NAME, as --command-config of all commands takes them

All files are readable by their owner only. The key of the authority has no password: whoever reads it can make
certificates that the brokers accept.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkapy.config.properties import load_properties
from kafkapy.errors import KafkaError
from kafkapy.tools.lazy_group import CommandGroup
from kafkapy.tools.options import json_option
from kafkapy.tools.output import Column, Output

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from kafkapy.security.ssl.certificates import Identity

__all__ = ["certs"]

AUTHORITY: Final = "ca"
BROKER: Final = "broker"
CLIENT: Final = "client"
PASSWORDS: Final = "passwords.properties"
STORE_PASSWORD: Final = "store.password"
RESERVED: Final = frozenset((AUTHORITY, "ca-key", "truststore", "passwords"))
OWNER_ONLY: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SHOW_COLUMNS: Final = (
    Column("file"),
    Column("subject"),
    Column("alternative_names"),
    Column("expires"),
    Column("days_left", right=True),
    Column("issuer", quiet=True),
)

days_option = click.option("--days", type=click.IntRange(1, 36500), help="Days until the certificates expire.")


@click.group("certs", cls=CommandGroup)
def certs() -> None:
    """Create, renew and show certificates for development."""


@certs.command("create")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name or an address of the broker. Repeat it for more.",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help=f"Name of a client. Default: {CLIENT}. Repeat it for more.",
)
@days_option
def create(directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...], days: int | None) -> None:
    """Create an authority, and certificates for a broker and clients.

    Without --host the broker's certificate is for localhost and this machine's name. The command writes the lines for
    the broker and for its clients into the directory, and prints them.

    Example: kafkapy certs create certs --client alice
    """
    from kafkapy.security.ssl.certificates import CERTIFICATE_DAYS, create_authority

    names = clients or (CLIENT,)
    for name in names:
        _check_name(name)
    if len({BROKER, *names}) != len(names) + 1:
        raise click.ClickException("Broker and clients need different names.")
    if (directory / f"{AUTHORITY}.pem").exists():
        raise click.ClickException(
            f"{directory} has an authority already: kafkapy certs issue adds a certificate, kafkapy certs renew renews."
        )
    with _errors():
        if not directory.exists():
            directory.mkdir(DIRECTORY_MODE, parents=True)
        authority = create_authority("CN=kafkapy development CA")
        password = secrets.token_urlsafe(18)
        _write(directory / "ca-key.pem", authority.key_pem())
        _write(directory / f"{AUTHORITY}.pem", authority.chain_pem())
        _write(directory / PASSWORDS, f"# The password of the .p12 files.\n{STORE_PASSWORD}={password}\n")
        _write_truststore(directory, authority, password)
        days = days or CERTIFICATE_DAYS
        _write_identity(directory, BROKER, authority.issue(_subject(BROKER), hosts=hosts or _own_hosts(), days=days))
        for name in names:
            _write_identity(directory, name, authority.issue(_subject(name), server=False, days=days))
            _write(directory / f"{name}.properties", _client_lines(directory, name))
        broker, client = _broker_lines(directory), _client_lines(directory, names[0])
        _write(directory / f"{BROKER}.properties", broker)
    files = ", ".join(f"{name}.pem" for name in (AUTHORITY, BROKER, *names))
    click.echo(f"{directory} has {files}, and .p12 files for older Java clients.\n")
    click.echo(f"Lines for the broker ({directory / 'broker.properties'}):\n")
    click.echo(broker)
    click.echo(f"Lines for the client {names[0]} ({directory / names[0]}.properties):\n")
    click.echo(client.rstrip("\n"))


@certs.command("issue")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("name")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name or an address, for a broker. Repeat it for more.",
)
@days_option
def issue(directory: Path, name: str, hosts: tuple[str, ...], days: int | None) -> None:
    """Add a certificate of the directory's authority.

    With --host it is for a broker, without it for a client. Example: kafkapy certs issue certs bob
    """
    from kafkapy.security.ssl.certificates import CERTIFICATE_DAYS

    _check_name(name)
    with _errors():
        authority = _authority(directory)
        if (directory / f"{name}.pem").exists():
            raise click.ClickException(f"{directory / name}.pem exists: kafkapy certs renew renews it.")
        identity = authority.issue(_subject(name), hosts=hosts, days=days or CERTIFICATE_DAYS, server=bool(hosts))
        _write_identity(directory, name, identity)
        if not hosts:
            _write(directory / f"{name}.properties", _client_lines(directory, name))
    click.echo(f"{directory / name}.pem and {directory / name}.p12 are valid until {_day(identity.certificate)}.")


@certs.command("renew")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("names", nargs=-1)
@days_option
def renew(directory: Path, names: tuple[str, ...], days: int | None) -> None:
    """Renew certificates, by default all of the directory.

    Names, hosts and the authority stay; keys are new. A running broker takes the new files when one of its store keys
    is set again, also to the same value. Example: kafkapy certs renew certs broker
    """
    from kafkapy.security.ssl.certificates import load_identity
    from kafkapy.security.ssl.chains import alternative_names, may_serve

    with _errors():
        authority = _authority(directory)
        for name in names or _issued_names(directory):
            _check_name(name)
            pem = _read(directory / f"{name}.pem")
            old = load_identity(pem, pem).certificate
            hosts = [str(each.value) for each in alternative_names(old)]
            identity = authority.issue(
                _name_text(old),
                hosts=sorted(hosts),
                days=days if days is not None else _days_of(old),
                server=may_serve(old, client=False),
                client=may_serve(old, client=True),
            )
            _write_identity(directory, name, identity)
            click.echo(f"{directory / name}.pem is valid until {_day(identity.certificate)}.")


@certs.command("show")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@json_option
def show(path: Path, as_json: bool) -> None:
    """Show the certificates of a directory, or of a PEM file."""
    with _errors():
        files = sorted(each for each in path.iterdir() if each.suffix == ".pem") if path.is_dir() else [path]
        rows = [row for file in files for row in _rows(file)]
    if not rows:
        raise click.ClickException(f"{path} has no certificate in PEM.")
    output = Output(as_json)
    output.rows(rows, SHOW_COLUMNS)


# --- files ------------------------------------------------------------------------------------------------------------


class _errors:
    """Errors of files and certificates become one sentence."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{where}{error.strerror or error}.") from None
        if isinstance(error, KafkaError | ValueError):
            raise click.ClickException(f"{error}.") from None


def _write(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner can read, in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, OWNER_ONLY)
    try:
        os.fchmod(descriptor, OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _write_identity(directory: Path, name: str, identity: Identity) -> None:
    _write(directory / f"{name}.pem", identity.key_pem() + identity.chain_pem())
    _write(directory / f"{name}.p12", identity.pkcs12(_password(directory), name))


def _write_truststore(directory: Path, authority: Identity, password: str) -> None:
    from kafkapy.security.ssl.certificates import truststore

    _write(directory / "truststore.p12", truststore(authority.chain, password))


def _password(directory: Path) -> str:
    values = load_properties(directory / PASSWORDS)
    if STORE_PASSWORD not in values:
        raise ValueError(f"{directory / PASSWORDS} has no key {STORE_PASSWORD}")
    return values[STORE_PASSWORD]


def _authority(directory: Path) -> Identity:
    from kafkapy.security.ssl.certificates import load_identity
    from kafkapy.security.ssl.chains import outside_validity

    path = directory / f"{AUTHORITY}.pem"
    if not path.exists():
        raise click.ClickException(f"{directory} has no authority: kafkapy certs create makes one.")
    authority = load_identity(_read(path), _read(directory / "ca-key.pem"))
    reason = outside_validity(authority.certificate)
    if reason:
        raise ValueError(f"{path}: {reason}; make a new directory with kafkapy certs create")
    return authority


def _issued_names(directory: Path) -> list[str]:
    found = sorted(path.stem for path in directory.glob("*.pem") if path.stem not in RESERVED)
    if not found:
        raise ValueError(f"{directory} has no certificate to renew")
    return found


# --- certificates -----------------------------------------------------------------------------------------------------


def _check_name(name: str) -> None:
    if _FILE_NAME.fullmatch(name) is None or name in RESERVED:
        raise click.ClickException(
            f"{name!r} cannot be the name of a certificate: use letters, digits and ._-, and none of "
            f"{', '.join(sorted(RESERVED))}."
        )


def _subject(name: str) -> str:
    return f"CN={name}"


def _name_text(certificate: Certificate) -> str:
    from kafkapy.security.ssl.chains import subject

    return subject(certificate)


def _own_hosts() -> list[str]:
    found = ["localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()]
    return [host for host in dict.fromkeys(found) if host and len(host) < 64]


def _days_of(certificate: Certificate) -> int:
    """The whole days for which a certificate was made."""
    return max((certificate.not_valid_after_utc - certificate.not_valid_before_utc).days, 1)


def _day(certificate: Certificate) -> str:
    return f"{certificate.not_valid_after_utc:%Y-%m-%d}"


def _rows(file: Path) -> Iterable[Mapping[str, Any]]:
    import datetime

    from cryptography import x509

    from kafkapy.security.ssl.chains import alternative_names
    from kafkapy.security.ssl.distinguished_name import name_text

    data = _read(file)
    if b"-----BEGIN CERTIFICATE-----" not in data:
        return
    now = datetime.datetime.now(datetime.UTC)
    for each in x509.load_pem_x509_certificates(data):
        yield {
            "file": file.name,
            "subject": _name_text(each),
            "alternative_names": sorted(str(name.value) for name in alternative_names(each)),
            "expires": f"{each.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
            "days_left": (each.not_valid_after_utc - now).days,
            "issuer": name_text(each.issuer.public_bytes()),
        }


# --- lines for both sides ---------------------------------------------------------------------------------------------


def _broker_lines(directory: Path) -> str:
    absolute = directory.absolute()
    return _lines(
        "listeners=SSL://:9093",
        "inter.broker.listener.name=SSL",
        "ssl.client.auth=required",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={absolute / BROKER}.pem",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={absolute / AUTHORITY}.pem",
        "# User:alice in place of User:CN=alice",
        "ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/,DEFAULT",
    )


def _client_lines(directory: Path, name: str) -> str:
    absolute = directory.absolute()
    passwords = absolute / PASSWORDS
    return _lines(
        "bootstrap.servers=localhost:9093",
        "security.protocol=SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={absolute / name}.pem",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={absolute / AUTHORITY}.pem",
        "# Java clients before 2.7 read no PEM; they need these lines in place of the last four:",
        "#   config.providers=file",
        "#   config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider",
        "#   ssl.keystore.type=PKCS12",
        f"#   ssl.keystore.location={absolute / name}.p12",
        f"#   ssl.keystore.password=${{file:{passwords}:{STORE_PASSWORD}}}",
        "#   ssl.truststore.type=PKCS12",
        f"#   ssl.truststore.location={absolute / 'truststore'}.p12",
        f"#   ssl.truststore.password=${{file:{passwords}:{STORE_PASSWORD}}}",
    )


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)
