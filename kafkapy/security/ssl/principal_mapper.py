"""ssl.principal.mapping.rules: from a distinguished name to a principal's name (KIP-371).

    RULE:^CN=([^,]+),.*$/$1/L,DEFAULT

    rules: rule, rule, ...
    rule: DEFAULT                            the whole distinguished name
          RULE:pattern/replacement/          $1 is a group of the pattern, \\ takes the next character as it is
          RULE:pattern/replacement/L         in lower case
          RULE:pattern/replacement/U         in upper case

Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper. Patterns run on RE2, as the other patterns of users:
RE2 takes linear time and has no look-ahead, look-behind and back references inside patterns.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, NamedTuple

__all__ = ["NoMatchingRuleError", "SslPrincipalMapper"]

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|.*?"
_SPLIT: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)", re.DOTALL)
_PARSE: Final = re.compile(_RULE.replace(".*?|.*?", ""), re.DOTALL)
_DIGITS: Final = frozenset("0123456789")


class NoMatchingRuleError(ValueError):
    """No rule matches the name: the client is not authenticated."""


class _Rule(NamedTuple):
    pattern: Any
    """None for DEFAULT."""
    pieces: tuple[str | int, ...]
    """Text, and numbers of groups."""
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = _replace_all(self.pattern, self.pieces, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result


class SslPrincipalMapper:
    """The compiled rules of a listener. Immutable; any thread may use it."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Compile the rules. ValueError with the rule and the reason."""
        self._text = rules
        self._rules = [_parse(rule) for match in _SPLIT.finditer(rules.strip()) if (rule := match[1])]

    def name(self, distinguished_name: str) -> str:
        """The principal's name. The first rule that matches the whole name wins.

        NoMatchingRuleError when none does.
        """
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"no rule of {self._text!r} matches {distinguished_name!r}")

    def __repr__(self) -> str:
        return f"SslPrincipalMapper({self._text!r})"


def _parse(rule: str) -> _Rule:
    match = _PARSE.match(rule)
    if match is None:
        raise ValueError(f"the rule {rule!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
    if match.end() != len(rule):
        raise ValueError(f"the rule {rule!r} has more behind its end: {rule[match.end() :]!r}")
    if match[1] is not None:
        return _Rule(None, (), "")
    re2, options = _engine()
    try:
        pattern = re2.compile(match[2], options)
    except re2.error as error:
        text = error.args[0]
        reason = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        raise ValueError(f"the pattern of the rule {rule!r} is not valid: {reason}") from None
    return _Rule(pattern, _pieces(rule, match[3], pattern.groups), match[4])


def _pieces(rule: str, replacement: str, groups: int) -> tuple[str | int, ...]:
    """The parts of a replacement, as java.util.regex.Matcher reads it.

    A reference to a group that the pattern does not have is text, as in Kafka.
    """
    pieces: list[str | int] = []
    at, end = 0, len(replacement)
    while at < end:
        char = replacement[at]
        at += 1
        if char == "\\":
            pieces.append(replacement[at])
            at += 1
            continue
        if char != "$":
            pieces.append(char)
            continue
        if at == end or replacement[at] not in _DIGITS:
            raise ValueError(
                f"in the replacement of the rule {rule!r} a $ stands without a digit; write \\$ for the sign"
            )
        number = int(replacement[at])
        if number > groups and not groups:
            raise ValueError(f"the replacement of the rule {rule!r} names group {number}, but the pattern has no group")
        if number > groups:
            pieces.append(char)
            continue
        at += 1
        # Java takes more digits as long as such a group exists.
        while at < end and replacement[at] in _DIGITS and number * 10 + int(replacement[at]) <= groups:
            number = number * 10 + int(replacement[at])
            at += 1
        pieces.append(number)
    return tuple(pieces)


def _replace_all(pattern: Any, pieces: tuple[str | int, ...], name: str) -> str:
    """java.lang.String.replaceAll: a pattern may match again behind its first match."""
    out: list[str] = []
    written = at = 0
    while at <= len(name):
        match = pattern.search(name, at)
        if match is None:
            break
        out.append(name[written : match.start()])
        out.extend(piece if isinstance(piece, str) else match.group(piece) or "" for piece in pieces)
        written = match.end()
        at = written + (match.start() == written)
    return "".join([*out, name[written:]])


@cache
def _engine() -> tuple[Any, Any]:
    """RE2 and its options, loaded with the first rule that has a pattern."""
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2, options
