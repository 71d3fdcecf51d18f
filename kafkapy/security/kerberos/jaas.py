"""The options of Krb5LoginModule, for brokers and clients.

    com.sun.security.auth.module.Krb5LoginModule required
        useKeyTab=true keyTab="/etc/kafka.keytab" principal="kafka/broker.example.com@EXAMPLE.COM" serviceName="kafka";

Source: com.sun.security.auth.module.Krb5LoginModule, org.apache.kafka.common.security.kerberos.KerberosLogin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["DEFAULT_SERVICE", "KerberosOptions", "kerberos_options"]

DEFAULT_SERVICE: Final = "kafka"
ANY_PRINCIPAL: Final = "*"


class KerberosOptions(NamedTuple):
    """The options that matter outside Java. Immutable."""

    principal: str | None
    """None.

    Every key of the service that the keytab has, or the ticket cache's principal.
    """
    keytab: str | None
    ticket_cache: str | None
    use_ticket_cache: bool
    service: str


def kerberos_options(option: Callable[[str], str | None], service: str | None) -> KerberosOptions:
    """The options of an entry; `service` is sasl.kerberos.service.name.

    ValueError when both name different services, or a keytab is asked for but not named.
    """
    in_jaas = option("serviceName")
    if in_jaas and service and in_jaas != service:
        raise ValueError(f"serviceName is {in_jaas}, but sasl.kerberos.service.name is {service}")
    principal = option("principal")
    keytab = option("keyTab") or None
    if keytab is None and _is_true(option("useKeyTab")):
        raise ValueError("useKeyTab needs the option keyTab with a file")
    return KerberosOptions(
        None if principal in (None, "", ANY_PRINCIPAL) else principal,
        None if keytab is None else keytab.removeprefix("FILE:"),
        option("ticketCache") or None,
        _is_true(option("useTicketCache")),
        in_jaas or service or DEFAULT_SERVICE,
    )


def _is_true(value: str | None) -> bool:
    return value is not None and value.lower() == "true"
