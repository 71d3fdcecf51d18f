"""ssl.principal.mapping.rules: from a distinguished name to a principal's name (KIP-371).

    RULE:^CN=([^,]+),.*$/$1/L,DEFAULT

Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper.
"""

from __future__ import annotations

__all__ = ["NoMatchingRuleError", "SslPrincipalMapper"]


class NoMatchingRuleError(ValueError):
    """No rule matches the name: the client is not authenticated."""


class SslPrincipalMapper:
    """The compiled rules of a listener. Immutable; any thread may use it."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Compile the rules. ValueError with the rule and the reason."""
        raise NotImplementedError

    def name(self, distinguished_name: str) -> str:
        """The principal's name. The first rule that matches the whole name wins.

        NoMatchingRuleError when none does.
        """
        raise NotImplementedError
