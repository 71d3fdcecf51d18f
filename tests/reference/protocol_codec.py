"""The wire format in plain Python, to hold against the compiled codec: the same declarations, none of the same code."""

from __future__ import annotations

import struct as packer
from typing import Any
from uuid import UUID

from kafkapy.protocol.schema import Field, Message, Struct

NUMBERS = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def length(size: int, compact: bool, fmt: str) -> bytes:
    return varint(size + 1) if compact else packer.pack(f">{fmt}", size)


def encode_value(field: Field, value: Any, version: int, flexible: bool, in_tag: bool = False) -> bytes:
    kind, compact = field.kind, flexible and field.compactable
    if kind in NUMBERS:
        return packer.pack(f">{NUMBERS[kind]}", value)
    if kind == "uuid":
        return bytes(value.bytes)
    if kind == "struct":
        prefix = b""
        if version in field.nullable:
            if value is None:
                return b"\x00" if in_tag else b"\xff"
            prefix = b"\x01"
        return prefix + encode_struct(value, version, flexible)
    fmt = "h" if kind == "string" else "i"
    if value is None:
        return length(-1, compact, fmt)
    if kind == "array":
        assert field.element is not None
        items = b"".join(encode_value(field.element, item, version, flexible) for item in value)
        return length(len(value), compact, fmt) + items
    raw = value.encode() if kind == "string" else bytes(value)
    return length(len(raw), compact, fmt) + raw


def encode_struct(instance: Struct, version: int, flexible: bool) -> bytes:
    out, tags = b"", dict(instance._unknown_tags or {})
    for field in type(instance)._fields:
        value = getattr(instance, field.name)
        if version not in field.versions:
            continue
        if flexible and version in field.tagged:
            default = field.default() if isinstance(field.default, type) else field.default
            if value != default:
                assert field.tag is not None
                tags[field.tag] = encode_value(field, value, version, flexible, in_tag=True)
        else:
            out += encode_value(field, value, version, flexible)
    if flexible:
        out += varint(len(tags))
        for tag, raw in sorted(tags.items()):
            out += varint(tag) + varint(len(raw)) + raw
    return out


def encode(message: Message, version: int) -> bytes:
    return encode_struct(message, version, version in message.FLEXIBLE)


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        assert 0 <= size <= len(self.data) - self.at
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def decode_value(reader: Reader, field: Field, version: int, flexible: bool, in_tag: bool = False) -> Any:
    kind = field.kind
    if kind in NUMBERS:
        return packer.unpack(f">{NUMBERS[kind]}", reader.take(packer.calcsize(f">{NUMBERS[kind]}")))[0]
    if kind == "uuid":
        return UUID(bytes=reader.take(16))
    if kind == "struct":
        assert field.struct is not None
        if version in field.nullable and reader.take(1) == (b"\x00" if in_tag else b"\xff"):
            return None
        return decode_struct(reader, field.struct, version, flexible)
    if flexible and field.compactable:
        size = reader.varint() - 1
    else:
        fmt = ">h" if kind == "string" else ">i"
        size = packer.unpack(fmt, reader.take(packer.calcsize(fmt)))[0]
    if size < 0:
        return None
    if kind == "array":
        assert field.element is not None
        return [decode_value(reader, field.element, version, flexible) for _ in range(size)]
    raw = reader.take(size)
    return raw.decode() if kind == "string" else raw


def decode_struct(reader: Reader, cls: type[Struct], version: int, flexible: bool) -> Any:
    instance, tagged = cls(), {}
    for field in cls._fields:
        if version in field.versions and flexible and version in field.tagged:
            tagged[field.tag] = field
        elif version in field.versions:
            setattr(instance, field.name, decode_value(reader, field, version, flexible))
    for _ in range(reader.varint() if flexible else 0):
        tag, size = reader.varint(), reader.varint()
        inner = Reader(reader.take(size))
        if tag in tagged:
            setattr(instance, tagged[tag].name, decode_value(inner, tagged[tag], version, flexible, in_tag=True))
        else:
            instance._unknown_tags = {**(instance._unknown_tags or {}), tag: inner.take(size)}
    return instance


def decode(cls: type[Message], data: bytes, version: int) -> Any:
    reader = Reader(data)
    message = decode_struct(reader, cls, version, version in cls.FLEXIBLE)
    assert reader.at == len(data)
    return message
