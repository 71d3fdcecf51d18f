"""Registers the authorizer with ACLs; its module is imported when the configuration names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkapy.plugins import hookimpl
from kafkapy.security.authorizer.base import Authorizer


def _make() -> Authorizer:
    from kafkapy.security.authorizer.acl import AclAuthorizer

    return AclAuthorizer()


@hookimpl
def register_authorizers() -> Mapping[str, Callable[[], Authorizer]]:
    """The factory of the authorizer, by its registered name."""
    return {"acl": _make}
