"""Regular expressions of subscriptions (KIP-848), in RE2's syntax.

A pattern comes from any client that may send a heartbeat, so neither its compilation nor a match may take long or much
memory: RE2 matches in linear time, and a pattern that compiles to a large program is refused as not valid.

Source: Kafka compiles with RE2/J, in org.apache.kafka.coordinator.group.Utils (throwIfRegularExpressionIsInvalid) and
GroupMetadataManager (refreshRegularExpressions). RE2 itself reads the same syntax, except that it accepts a name given
to two groups, and \\C; its description of a pattern that is not valid is translated into RE2/J's words.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from kafkapy.errors import ErrorCode, KafkaError, error_for

MAX_WEIGHT: Final = 1 << 15
"""Longest pattern in bytes, where a repetition count and a Unicode class weigh as much as CONSTRUCT_WEIGHT bytes."""
CONSTRUCT_WEIGHT: Final = 256
MAX_MEMORY: Final = 1 << 20
"""Bytes that RE2 may use for a compiled pattern and the automaton it builds while it matches."""
MAX_PROGRAM: Final = 20_000
"""Instructions of a compiled pattern. At worst each takes about 12 ns for each character of a topic's name."""
MAX_SECONDS: Final = 5.0
"""Seconds after which a match is stopped."""

_TOO_LARGE: Final = "expression too large"
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid character class": "invalid character class range",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "pattern too large": _TOO_LARGE,
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
}
"""RE2/J's descriptions of errors by RE2's, where they differ."""

logger = logging.getLogger("kafkapy.coordinator")


class TopicPattern:
    """A compiled pattern.

    Immutable, for any thread; the GIL is free while RE2 matches.
    """

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._compiled.fullmatch(name.encode()) is not None

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """The names that match. TimeoutError after MAX_SECONDS.

        For a worker thread where there may be many.
        """
        deadline = time.monotonic() + MAX_SECONDS
        found = []
        for name in names:
            if self.matches(name):
                found.append(name)
            if time.monotonic() > deadline:
                raise TimeoutError(f"its pattern took longer than {MAX_SECONDS} s")
        return frozenset(found)


def compile_pattern(text: str) -> TopicPattern:
    """The compiled pattern; takes some 50 ms at most.

    INVALID_REGULAR_EXPRESSION, with the reason, for a pattern that is not valid or too large.
    """
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise _invalid(repr(text), "invalid UTF-8") from None
    constructs = encoded.count(b"{") + encoded.count(b"\\p") + encoded.count(b"\\P")
    if len(encoded) + CONSTRUCT_WEIGHT * constructs > MAX_WEIGHT:
        raise _invalid(f"{text[:100]}...", _TOO_LARGE)
    re2, options = _engine()
    try:
        compiled = re2.compile(encoded, options)
    except re2.error as error:
        raise _invalid(text, _description(error.args[0].decode(errors="replace"))) from error
    finally:
        # It would keep the last 128 patterns, with all the memory that each may take.
        re2.purge()
    if compiled.programsize > MAX_PROGRAM:
        raise _invalid(text, _TOO_LARGE)
    return TopicPattern(compiled)


def resolve(patterns: Iterable[str], topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """The topics that each pattern matches.

    Any thread; with thousands of topics, a worker thread. A pattern that is not valid matches no topic, nor does a
    pattern that takes longer than MAX_SECONDS; both are logged.
    """
    names = list(topics)
    resolved: dict[str, frozenset[str]] = {}
    for text in patterns:
        try:
            resolved[text] = compile_pattern(text).matching(names)
        except (KafkaError, TimeoutError) as error:
            logger.warning("A subscription matches no topic: %s", error)
            resolved[text] = frozenset()
    return resolved


@cache
def _engine() -> tuple[Any, Any]:
    """RE2 and its options, loaded with the first pattern: most brokers never see one."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    options.never_capture = True
    return re2, options


def _description(message: str) -> str:
    """RE2/J's description for an error of RE2.

    RE2's message is a reason and, mostly, the part of the pattern that it concerns.
    """
    reason, _, part = message.partition(": ")
    if part.startswith("(?<"):
        return "invalid named capture"
    return _DESCRIPTIONS.get(reason.partition(" - ")[0], reason)


def _invalid(text: str, description: str) -> KafkaError:
    message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {description}."
    return error_for(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
