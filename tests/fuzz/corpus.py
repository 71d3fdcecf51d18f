"""Valid requests in a file for perf/native/hostile.c, with marks at their counts, lengths and numbers."""

from __future__ import annotations

import struct
from itertools import chain
from pathlib import Path

from fuzz.frames import Maker

from kafkapy.protocol.registry import ApiKeys, api
from kafkapy.protocol.schema import Field, Struct

FIXED, UVARINT, RECORDS, KEPT, TEXT, NUMBER = 1, 2, 3, 4, 5, 6
"""A length or count of fixed size, a varint, record batches, what is not to change, bytes, and a plain number."""
_SIZES = {"boolean": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8}
_BOUNDED = (ApiKeys.CREATE_TOPICS, ApiKeys.CREATE_PARTITIONS)
"""Requests that make something lasting: names and numbers of partitions in them stay as they are."""
_LASTING = ("name", "num_partitions", "count", "partition_index", "broker_ids")
NATIVE = (ApiKeys.PRODUCE, ApiKeys.FETCH)
"""Those that the data plane decodes without Python."""
_IS_BOUNDED, _IS_NATIVE = 1, 2


class Marks:
    """Walks the body of a request beside its declaration, and notes (place, size, kind)."""

    def __init__(self, frame: bytes, at: int, version: int, flexible: bool) -> None:
        self.found: list[tuple[int, int, int]] = []
        self._frame, self._version, self._flexible, self.at = frame, version, flexible, at

    def _uvarint(self) -> int:
        start, value, shift = self.at, 0, 0
        while True:
            byte = self._frame[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                self.found.append((start, self.at - start, UVARINT))
                return value

    def _length(self, size: int, compact: bool) -> int:
        if compact:
            return self._uvarint() - 1
        self.found.append((self.at, size, FIXED))
        self.at += size
        return int.from_bytes(self._frame[self.at - size : self.at], "big", signed=True)

    def fields(self, kind: type[Struct]) -> None:
        for field in kind._fields:
            if self._version in field.versions and self._version not in field.tagged:
                self._value(field)
        if self._flexible:
            for _ in range(self._uvarint()):
                self._uvarint()
                size = self._uvarint()
                self.at += size

    def _value(self, field: Field) -> None:
        start = self.at
        if field.kind == "struct":
            assert field.struct is not None
            if self._version in field.nullable:
                self.at += 1
                self.found.append((start, 1, FIXED))
                if self._frame[start] == 255:
                    return
            self.fields(field.struct)
        elif field.kind == "array":
            assert field.element is not None
            for _ in range(self._length(4, self._flexible)):
                self._value(field.element)
        elif field.kind in ("string", "bytes", "records"):
            size = max(0, self._length(2 if field.kind == "string" else 4, self._flexible and field.compactable))
            self.found.append((self.at, size, RECORDS if field.kind == "records" else TEXT))
            self.at += size
        else:
            size = _SIZES.get(field.kind, 16)
            self.found.append((start, size, NUMBER if size < 16 else TEXT))
            self.at += size
        if field.name in _LASTING and self.at > start:
            self.found.append((start, self.at - start, KEPT))


def marks(key: int, version: int, frame: bytes) -> list[tuple[int, int, int]]:
    """Of a whole request. Raises ValueError when its declaration does not say every byte of it."""
    flexible = version >= api(key).first_flexible
    body = 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True)) + flexible
    walk = Marks(frame, body, version, flexible)
    walk.fields(api(key).request)
    if walk.at != len(frame):
        raise ValueError(f"{ApiKeys(key).name} {version}: {walk.at} of {len(frame)} bytes are declared")
    bounded = key in _BOUNDED
    return [each for each in walk.found if bounded or each[2] != KEPT]


def write_corpus(path: Path, maker: Maker, served: dict[int, tuple[int, int]], each: int = 3) -> int:
    """How many requests it wrote: `each` of every served version, and ten times as many of those of NATIVE."""
    native = {key: versions for key, versions in served.items() if key in NATIVE}
    others = {key: versions for key, versions in served.items() if key not in NATIVE}
    every = []
    for key, version, frame in chain(maker.frames(others, each), maker.frames(native, each * 10)):
        found = marks(key, version, frame)
        flags = _IS_BOUNDED * (key in _BOUNDED) | _IS_NATIVE * (key in NATIVE)
        head = struct.pack(">IBH", len(frame), flags, len(found))
        every.append(head + frame + b"".join(struct.pack(">IHB", *mark) for mark in found))
    path.write_bytes(b"".join(every))
    return len(every)
