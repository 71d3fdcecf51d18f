"""TLS and SASL of a test's broker.

Each broker has an authority for its certificates, which exist only in memory until a client library needs a file.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkapy.broker.scram_credentials import Upsertion
from kafkapy.errors import ConfigError
from kafkapy.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from kafkapy.security.scram import MIN_ITERATIONS, ScramMechanism
from kafkapy.types import SecurityProtocol

if TYPE_CHECKING:
    from kafkapy.security.ssl.certificates import Identity

__all__ = ["BrokerSecurity"]

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The mechanisms that need only users; clients use the first by default."""
HOSTS: Final = ("localhost", "127.0.0.1", "::1")
DEFAULT_USER: Final = "user"
SALT_BYTES: Final = 16


class BrokerSecurity:
    """The security of one broker.

    Immutable, except that it makes certificates and files at their first use.
    """

    def __init__(
        self,
        protocol: str = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        mechanisms: Iterable[str] = MECHANISMS,
    ) -> None:
        """ConfigError for an unknown protocol or mechanism."""
        if protocol.upper() not in SecurityProtocol.__members__:
            allowed = ", ".join(SecurityProtocol.__members__)
            raise ConfigError("security", protocol, f"must be one of {allowed}")
        self.protocol = SecurityProtocol[protocol.upper()]
        self.mechanisms = tuple(mechanisms)
        unknown = [mechanism for mechanism in self.mechanisms if mechanism not in MECHANISMS]
        if unknown:
            raise ConfigError("mechanisms", unknown[0], f"must be of {', '.join(MECHANISMS)}")
        if users is None and self.protocol.sasl:
            users = {DEFAULT_USER: secrets.token_urlsafe(12)}
        self.users = dict(users or {})
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @property
    def tls(self) -> bool:
        """Whether the connections are TLS."""
        return self.protocol in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    def broker_keys(self) -> dict[str, str]:
        """The keys of the broker, with one listener on a free port of 127.0.0.1."""
        name = self.protocol.name
        keys = {"listeners": f"{name}://127.0.0.1:0"}
        if self.protocol is SecurityProtocol.PLAINTEXT:
            return keys
        keys["security.inter.broker.protocol"] = name
        if self.tls:
            broker = self.authority.issue("broker", hosts=HOSTS)
            keys |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": broker.key_pem(),
                "ssl.keystore.certificate.chain": broker.chain_pem(),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.ca_pem,
            }
        if self.protocol.sasl:
            keys["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
            keys["sasl.mechanism.inter.broker.protocol"] = self.mechanisms[0]
            for mechanism in self.mechanisms:
                prefix = f"listener.name.{name.lower()}.{mechanism.lower()}."
                keys[prefix + "sasl.jaas.config"] = self._jaas(mechanism)
        return keys

    def _jaas(self, mechanism: str) -> str:
        # The broker itself logs in to other brokers as the first user.
        login = "".join(
            f" username={_quoted(name)} password={_quoted(password)}" for name, password in [*self.users.items()][:1]
        )
        if mechanism != "PLAIN":
            return f"{SCRAM_MODULE} required{login};"
        users = "".join(f" {_quoted(f'user_{name}')}={_quoted(password)}" for name, password in self.users.items())
        return f"{PLAIN_MODULE} required{login}{users};"

    def credentials(self) -> list[Upsertion]:
        """The SCRAM credentials of all users."""
        found = []
        for name in self.mechanisms if self.protocol.sasl else ():
            if name == "PLAIN":
                continue
            mechanism = ScramMechanism.of_name(name)
            for user, password in self.users.items():
                salt = os.urandom(SALT_BYTES)
                salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, MIN_ITERATIONS)
                found.append(Upsertion(user, mechanism.value, MIN_ITERATIONS, salt, salted))
        return found

    # --- for clients --------------------------------------------------------------------------------------------------

    def client_keys(
        self, user: str | None = None, mechanism: str | None = None, certificate: str | None = None
    ) -> dict[str, str]:
        """The keys of a client.

        `certificate`: the distinguished name in a certificate made for it. ConfigError for an unknown user or
        mechanism.
        """
        keys = {"security.protocol": self.protocol.name}
        if self.tls:
            keys |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ca_pem}
            if certificate is not None:
                made = self.authority.issue(certificate)
                keys |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.key": made.key_pem(),
                    "ssl.keystore.certificate.chain": made.chain_pem(),
                }
        if self.protocol.sasl:
            user = next(iter(self.users)) if user is None else user
            mechanism = self.mechanisms[0] if mechanism is None else mechanism
            if user not in self.users:
                raise ConfigError("user", user, f"must be one of {', '.join(self.users)}")
            if mechanism not in self.mechanisms:
                raise ConfigError("mechanism", mechanism, f"must be one of {', '.join(self.mechanisms)}")
            keys |= {
                "sasl.mechanism": mechanism,
                "sasl.plain.username": user,
                "sasl.plain.password": self.users[user],
            }
        return keys

    @cached_property
    def authority(self) -> Identity:
        """The authority that signs the certificates."""
        from kafkapy.security.ssl.certificates import create_authority

        return create_authority("kafkapy testing")

    @property
    def ca_pem(self) -> str:
        """The authority's certificate in PEM."""
        return self.authority.chain_pem()

    def ca_file(self) -> Path:
        """A file with the authority's certificate, until `remove_files`."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="kafkapy-testing-")
        file = Path(self._directory.name) / "ca.pem"
        if not file.exists():
            file.write_text(self.ca_pem, encoding="utf-8")
        return file

    def remove_files(self) -> None:
        """Remove the files made here. A second call does nothing."""
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()


def _quoted(text: str) -> str:
    """A text in JAAS form."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
