"""The package gssapi, which is an extra.

It needs the Kerberos libraries of the system. Its calls may wait for a key distribution centre or a disk, so they run
on worker threads.
"""

from __future__ import annotations

from typing import Any, Final

from kafkapy.errors import ConfigError

__all__ = [
    "default_realm", "kerberos_only", "load_gssapi", "minor_code", "principal_name", "reason", "service_name",
    "unreachable",
]  # fmt: skip

_UNREACHABLE: Final = frozenset(
    code + 2**32
    for code in (
        -1765328228,  # KRB5_KDC_UNREACH
        -1765328164,  # KRB5_REALM_CANT_RESOLVE
    )
)
"""Codes of krb5.h; the library gives them without sign."""


def load_gssapi(key: str) -> Any:
    """The package. ConfigError for `key` when it is missing."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise ConfigError(
            key, "GSSAPI", f"GSSAPI needs the Kerberos libraries and pip install 'kafkapy[gssapi]' ({error})"
        ) from None
    return gssapi


def kerberos_only(gssapi: Any) -> list[Any]:
    """The mechanisms that a login may use: Kerberos 5."""
    return [gssapi.MechType.kerberos]


def principal_name(gssapi: Any, principal: str) -> Any:
    """The library's name of a principal."""
    return gssapi.Name(principal, gssapi.NameType.kerberos_principal)


def service_name(gssapi: Any, service: str, host: str | None = None) -> Any:
    """The library's name of a service on a host, or on every host."""
    return gssapi.Name(service if host is None else f"{service}@{host}", gssapi.NameType.hostbased_service)


def default_realm(gssapi: Any) -> str:
    """The default realm of the system; empty when it has none."""
    try:
        name = str(principal_name(gssapi, "x").canonicalize(gssapi.MechType.kerberos))
    except gssapi.exceptions.GSSError:
        return ""
    return name.partition("@")[2]


def minor_code(error: Exception) -> int:
    """The code of Kerberos in an error of the library; 0 without one."""
    code = getattr(error, "min_code", 0)
    return code if isinstance(code, int) else 0


def reason(error: Exception) -> str:
    """The text of an error of the library, the cause first."""
    describe = getattr(error, "get_all_statuses", None)
    if not callable(describe):
        return str(error)
    statuses = list(describe(minor_code(error), False)) if minor_code(error) else []
    if not statuses:
        statuses = list(describe(getattr(error, "maj_code", 0), True))
    return ", ".join(str(status) for status in statuses)


def unreachable(error: Exception) -> bool:
    """Whether no key distribution centre answered, so that a later attempt may succeed."""
    return minor_code(error) in _UNREACHABLE
