"""sasl.kerberos.principal.to.local.rules: from a Kerberos principal to a short name.

    DEFAULT                                      alice@REALM -> alice, in the default realm only
    RULE:[n:format](match)s/from/to/g/L          principals with n components

`format` builds a text from $0 (the realm), $1 (the primary) and $2 (the instance). The rule applies when the text has
the pattern `match` from end to end; without `match` it always does. Then `from` is replaced by `to`, once, or with `g`
everywhere, and L or U changes the case. The first rule that applies wins. Everything behind `]` is optional. Source:
org.apache.kafka.common.security.kerberos.KerberosShortNamer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkapy.security.java_patterns import compile_java, replace_java

__all__ = ["KerberosName", "KerberosShortNamer", "NoMatchingRuleError"]

_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"RULE:\[(?P<components>[0-9]*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$([0-9]*)")
_NOT_SIMPLE: Final = re.compile(r"[/@]")
_MOST_DIGITS: Final = 9


class NoMatchingRuleError(ValueError):
    """No rule gives the principal a short name: the client is not authenticated."""


class KerberosName(NamedTuple):
    """A principal: primary[/instance]@REALM, or a simple name. Immutable."""

    primary: str
    instance: str | None = None
    realm: str | None = None

    @classmethod
    def parse(cls, text: str) -> KerberosName:
        """The parts of a principal. ValueError for more than one / or @."""
        match = _NAME.fullmatch(text)
        if match is not None:
            return cls(match[1], match[2], match[3])
        if "@" in text:
            raise ValueError(f"Malformed Kerberos name: {text}")
        return cls(text)

    def __str__(self) -> str:
        instance = "" if self.instance is None else f"/{self.instance}"
        realm = "" if self.realm is None else f"@{self.realm}"
        return f"{self.primary}{instance}{realm}"


class _Rule(NamedTuple):
    text: str
    components: int
    """Number of components without the realm; 0 for DEFAULT."""
    format: str = ""
    match: re.Pattern[str] | None = None
    from_: re.Pattern[str] | None = None
    to: str = ""
    repeat: bool = False
    case: str | None = None

    def apply(self, parts: list[str], default_realm: str) -> str | None:
        """The short name, None when the rule does not apply.

        `parts` are realm, primary and perhaps instance.
        """
        if self.components == 0:
            result = parts[1] if parts[0] == default_realm else None
        else:
            result = self._result(parts) if len(parts) - 1 == self.components else None
        if result is None:
            return None
        if _NOT_SIMPLE.search(result):
            raise NoMatchingRuleError(f"Non-simple name {result} after auth_to_local rule {self.text}")
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _result(self, parts: list[str]) -> str | None:
        base = _PARAMETER.sub(lambda found: self._part(found[1], parts), self.format)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        return base if self.from_ is None else replace_java(self.from_, self.to, base, every=self.repeat)

    def _part(self, number: str, parts: list[str]) -> str:
        if not number or len(number) > _MOST_DIGITS or int(number) >= len(parts):
            raise ValueError(f"${number} in the rule {self.text} is none of $0 to ${len(parts) - 1}")
        return parts[int(number)]


class KerberosShortNamer:
    """The compiled rules of a listener. Immutable; any thread may use it."""

    def __init__(self, default_realm: str, rules: Iterable[str] = ("DEFAULT",)) -> None:
        """Compile the rules. ValueError with the rule and the reason."""
        self._default_realm = default_realm
        self._rules = [_compiled(rule) for rule in rules]

    def short_name(self, name: KerberosName) -> str:
        """The short name of a principal; a simple name stays unchanged.

        NoMatchingRuleError when no rule applies; ValueError when a rule that applies is wrong.
        """
        if name.instance is None and name.realm is None:
            return name.primary
        parts = [name.realm or "", name.primary]
        if name.instance is not None:
            parts.append(name.instance)
        for rule in self._rules:
            result = rule.apply(parts, self._default_realm)
            if result is not None:
                return result
        rules = ", ".join(rule.text for rule in self._rules)
        raise NoMatchingRuleError(f"No rules apply to {name}, rules [{rules}]")


def _compiled(rule: str) -> _Rule:
    if rule == "DEFAULT":
        return _Rule(rule, 0)
    match = _RULE.match(rule)
    if match is None:
        raise ValueError(f"Invalid rule: {rule}")
    if match.end() != len(rule):
        raise ValueError(f"Invalid rule: `{rule}`, unmatched substring: `{rule[match.end() :]}`")
    components = match["components"]
    if not components or len(components) > _MOST_DIGITS or int(components) == 0:
        raise ValueError(f"Invalid rule: {rule}: the number of components must be 1 or more")
    try:
        patterns = [None if match[name] is None else compile_java(match[name]) for name in ("match", "from")]
    except ValueError as error:
        raise ValueError(f"Invalid rule: {rule}: {error}") from None
    return _Rule(
        rule,
        int(components),
        match["format"],
        patterns[0],
        patterns[1],
        match["to"] or "",
        match["repeat"] is not None,
        match["case"],
    )
