"""DER: the little of ASN.1 that names and stores need.

value: tag byte | length | content
length: one byte below 128, or 128 + n and n bytes, most significant first
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["BIT_STRING", "INTEGER", "OCTET_STRING", "OID", "SEQUENCE", "SET", "DerValue", "read", "read_all"]

INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OID: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31
_LONG_FORM: Final = 0x80
_MOST_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class DerValue:
    """One value, with its place in the bytes.

    Iteration gives the values in its content.
    """

    tag: int
    data: bytes
    start: int
    content: int
    """Where the content begins."""
    end: int

    @property
    def encoded(self) -> bytes:
        """Tag, length and content."""
        return self.data[self.start : self.end]

    @property
    def inner(self) -> bytes:
        """The content."""
        return self.data[self.content : self.end]

    def __iter__(self) -> Iterator[DerValue]:
        # ValueError for content of other kinds.
        at = self.content
        while at < self.end:
            value = read(self.data, at, self.end)
            yield value
            at = value.end

    def expect(self, tag: int) -> DerValue:
        """This value, when it has that tag; else ValueError."""
        if self.tag != tag:
            raise ValueError(f"tag {tag:#x} is expected at byte {self.start}, not {self.tag:#x}")
        return self

    @property
    def oid(self) -> str:
        """The dotted text of an object identifier."""
        numbers: list[int] = []
        number = 0
        for byte in self.expect(OID).inner:
            number = number << 7 | byte & 0x7F
            if not byte & 0x80:
                numbers.append(number)
                number = 0
        if not numbers:
            raise ValueError(f"the object identifier at byte {self.start} is empty")
        first = min(numbers[0] // 40, 2)
        return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def read(data: bytes, at: int = 0, end: int | None = None) -> DerValue:
    """The value at a place. ValueError when it does not fit."""
    end = len(data) if end is None else end
    if end - at < 2:
        raise ValueError(f"a value is cut off at byte {at}")
    tag, length, content = data[at], data[at + 1], at + 2
    if length & _LONG_FORM:
        count = length & ~_LONG_FORM
        if not 1 <= count <= _MOST_LENGTH_BYTES or count > end - content:
            raise ValueError(f"the length at byte {at + 1} is not valid")
        length = int.from_bytes(data[content : content + count], "big")
        content += count
    if length > end - content:
        raise ValueError(f"the value at byte {at} has {length} bytes, but only {end - content} are left")
    return DerValue(tag, data, at, content, content + length)


def read_all(data: bytes) -> DerValue:
    """The only value of these bytes. ValueError when bytes follow."""
    value = read(data)
    if value.end != len(data):
        raise ValueError(f"{len(data) - value.end} bytes follow the value")
    return value
