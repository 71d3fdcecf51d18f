"""Filters of records: expressions of the Common Expression Language (CEL), which has no loops and reaches nothing else.

    value.amount > 100 && key.startsWith("eu-")
    has(headers.trace) && timestamp >= 1700000000000

Names: `key` and `value` (decoded), `headers` (texts by name), `topic`, `partition`, `offset`, `timestamp` (ms), `size`.
"""

from __future__ import annotations

import re
from typing import Any

import cel

from kafkapy_console.errors import BadInputError

__all__ = ["EXAMPLES", "Filter"]

MOST_CHARACTERS = 2000
MOST_MACROS = 1
"""Loops over lists (all, exists, map, filter): one inside another multiplies the work, which nothing interrupts."""
MACROS = re.compile(r"\b(?:all|exists|exists_one|map|filter)\b")
"""Blanks and comments may stand before the bracket."""
EXAMPLES = (
    ("value.amount > 100", "a field of a JSON, Avro or Protobuf value"),
    ('key.startsWith("eu-")', "the beginning of a key"),
    ('value.matches("time(d )?out")', "a regular expression on a text"),
    ('has(value.error) && value.error.code == "E42"', "a field that not every record has"),
    ('headers["trace-id"] == "4711"', "a header"),
    ("value == null", "tombstones"),
    ("partition == 3 && offset % 1000 == 0", "every thousandth record of a partition"),
    ('value.items.exists(each, each.sku == "A-1")', "an element of a list"),
)


class Filter:
    """A compiled expression. BadInputError for one that is not valid."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if len(self.text) > MOST_CHARACTERS:
            raise BadInputError(f"The filter has more than {MOST_CHARACTERS} characters.")
        if len(MACROS.findall(self.text)) > MOST_MACROS:
            raise BadInputError("The filter has more than one of all, exists, exists_one, map and filter.")
        try:
            self._program = cel.compile(self.text)
        except Exception as error:
            raise BadInputError(f"The filter is no CEL expression: {_first_line(error)}") from None
        self.failed = 0
        """Records for which the expression has no result: a field is missing, or types do not fit."""
        self.failure = ""
        """The newest reason."""

    def matches(self, names: dict[str, Any]) -> bool:
        """Whether a record passes. A record without a result does not, and counts as failed."""
        try:
            result = self._program.execute(names)
        except Exception as error:
            self.failed += 1
            self.failure = _first_line(error)
            return False
        if isinstance(result, bool):
            return result
        self.failed += 1
        self.failure = f"the result is no truth value, but {type(result).__name__}"
        return False


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
