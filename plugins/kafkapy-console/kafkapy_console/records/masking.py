"""Masking rules: parts of records that nobody sees, on no page, in no filter, in no download."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from kafkapy_console.records.decoding import Decoded
from kafkapy_console.settings import MaskRule

__all__ = ["MASK", "Masks"]

MASK = "•••"


class Masks:
    """The rules of a console."""

    def __init__(self, rules: Iterable[MaskRule]) -> None:
        self._rules = tuple(rules)

    def of(self, topic: str) -> Sequence[MaskRule]:
        """The rules of a topic."""
        return [rule for rule in self._rules if any(fnmatchcase(topic, pattern) for pattern in rule.topics)]

    def covers(self, topic: str) -> bool:
        """Whether a rule is for the topic: its raw bytes are not shown then."""
        return bool(self.of(topic))

    def applied(self, topic: str, decoded: Decoded) -> Decoded:
        """A key or a value without its masked parts."""
        rules = self.of(topic)
        if not rules or decoded.is_null:
            return decoded
        value = decoded.value
        for rule in rules:
            if not rule.fields and rule.pattern is None and not rule.headers:
                return replace(decoded, value=MASK, given=MASK, masked=True)
            if isinstance(value, bytes) and (rule.fields or rule.pattern):
                # Bytes that no decoder understood may hold what the rule hides.
                return replace(decoded, value=MASK, given=MASK, masked=True)
            if rule.fields and not isinstance(value, (dict, list)):
                # Not the format that the rule's fields are of: a text may hold them in another form.
                return replace(decoded, value=MASK, given=MASK, masked=True)
            for path in rule.fields:
                value = _without(value, path)
            if rule.pattern is not None:
                value = _replaced(value, rule.pattern)
        if value == decoded.value:
            return decoded
        return replace(decoded, value=value, given=value if isinstance(value, str) else None, masked=True)

    def header(self, topic: str, name: str, text: str) -> str:
        """The text of a header."""
        for rule in self.of(topic):
            if name.lower() in rule.headers:
                return MASK
            if rule.pattern is not None:
                text = rule.pattern.sub(MASK, text)
        return text


def _without(value: Any, path: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_without(each, path) for each in value]
    if not isinstance(value, dict):
        return value
    if path[0] == "*":
        return {name: MASK if len(path) == 1 else _without(each, path[1:]) for name, each in value.items()}
    if path[0] not in value:
        return value
    return {**value, path[0]: MASK if len(path) == 1 else _without(value[path[0]], path[1:])}


def _replaced(value: Any, pattern: Any) -> Any:
    if isinstance(value, str):
        return pattern.sub(MASK, value)
    if isinstance(value, bytes):
        return MASK
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return MASK if pattern.search(str(value)) else value
    if isinstance(value, dict):
        return {_replaced(name, pattern): _replaced(each, pattern) for name, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, pattern) for each in value]
    return value
