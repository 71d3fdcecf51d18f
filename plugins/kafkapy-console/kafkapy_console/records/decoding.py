"""Keys and values of records as people read them: JSON, Avro, Protobuf, MessagePack, text or hex.

A record's bytes are somebody else's: each decoder is bounded, none runs code, and a failure is said beside the bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import msgpack

from kafkapy_console.errors import ConsoleError, sentence
from kafkapy_console.records.schemas import FRAME, Codec, Schemas, framed_id

__all__ = ["FORMATS", "Decoded", "Decoder", "hex_dump", "pretty"]

FORMATS: Final = ("auto", "json", "text", "registry", "msgpack", "hex", "base64", "integer")
"""The choices of a person. A schema of the schema directory is `local:NAME`."""
MOST_SHOWN = 200_000
"""Characters of one decoded value on a page."""
MOST_DUMPED = 16_384
"""Bytes of a hex dump."""
MOST_DEPTH = 200


@dataclass(frozen=True)
class Decoded:
    """A key or a value: the format that fitted, the value, and its text."""

    format: str
    value: Any
    """A value of JSON's types, a text, bytes, or None."""
    given: str | None
    """The text where it is not made of the value."""
    size: int
    note: str = ""
    """Why a format that was asked for did not fit."""
    masked: bool = False

    @cached_property
    def text(self) -> str:
        """For people: indented, not shortened. Made at its first use, because a search shows few of its records."""
        if self.given is not None:
            return encodable(self.given)
        return hex_dump(self.value) if isinstance(self.value, bytes) else encodable(pretty(self.value))

    @property
    def is_null(self) -> bool:
        """Whether the record has no such part; a null value is a tombstone."""
        return self.format == "null"

    @property
    def shown(self) -> str:
        """The text, cut at the most that a page shows."""
        return self.text if len(self.text) <= MOST_SHOWN else self.text[:MOST_SHOWN] + "…"

    def preview(self, length: int = 180) -> str:
        """The text in one line."""
        flat = " ".join(self.text[: length * 4].split())
        return flat if len(flat) <= length else flat[: length - 1] + "…"


NULL = Decoded("null", None, "null", -1)


MOST_FAILED = 20
"""Unknown schema ids of one read: more are no ids, but numbers in records."""


class Decoder:
    """Decodes with one choice of formats. `prepare` loads schemas; `decode` does not wait and may run on a thread."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._failed: dict[int, str] = {}

    async def prepare(self, parts: Iterable[bytes | None], form: str = "auto") -> None:
        """Loads the schemas that these keys or values name."""
        if self._schemas.registry is None or form not in ("auto", "registry"):
            return
        for part in parts:
            schema_id = None if part is None else framed_id(part)
            if schema_id is None or schema_id in self._failed or self._schemas.ready(schema_id) is not None:
                continue
            if len(self._failed) >= MOST_FAILED:
                return
            try:
                await self._schemas.load(schema_id)
            except ConsoleError as error:
                self._failed[schema_id] = sentence(error)

    def decode(self, data: bytes | None, form: str = "auto") -> Decoded:
        """A key or a value. Bytes that do not fit the asked format are shown as text or hex, with a note."""
        if data is None:
            return NULL
        if form == "auto":
            return self._auto(data)
        try:
            if form == "json":
                return _json(data)
            if form == "text":
                return Decoded("text", data.decode(), data.decode(), len(data))
            if form == "registry":
                return self._registry(data)
            if form == "msgpack":
                return _msgpack(data)
            if form == "integer":
                return _integer(data)
            if form == "base64":
                return Decoded("base64", data, base64.b64encode(data).decode(), len(data))
            if form.startswith("local:") and form[6:] in self._schemas.local:
                return _with_codec(self._schemas.local[form[6:]], data, len(data))
        except (ValueError, RecursionError, ConsoleError) as error:
            return replace(self._auto(data), note=f"Not {form}: {sentence(error)}")
        return _hex(data)

    def _auto(self, data: bytes) -> Decoded:
        note = ""
        if self._schemas.registry is not None and framed_id(data) is not None:
            try:
                return self._registry(data)
            except (ValueError, RecursionError, ConsoleError) as error:
                note = sentence(error)
        if data[:1] in (b"{", b"[", b'"') or data.strip() in (b"true", b"false", b"null"):
            try:
                return _json(data)
            except (ValueError, RecursionError):
                pass
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            if not any(character < " " and character not in "\t\n\r" for character in text):
                return Decoded("text", text, text, len(data), note)
        if data and (0x80 <= data[0] <= 0x9F or data[0] in (0xDC, 0xDD, 0xDE, 0xDF)):
            try:
                return _msgpack(data)
            except (ValueError, RecursionError):
                pass
        return replace(_hex(data), note=note)

    def _registry(self, data: bytes) -> Decoded:
        schema_id = framed_id(data)
        if schema_id is None:
            raise ValueError("the bytes name no schema")
        codec = self._schemas.ready(schema_id)
        if codec is None:
            raise ConsoleError(self._failed.get(schema_id, f"Schema {schema_id} is not loaded."))
        return _with_codec(codec, data[FRAME:], len(data))


def _with_codec(codec: Codec, data: bytes, size: int) -> Decoded:
    kind = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON Schema"}.get(codec.schema.kind, codec.schema.kind)
    try:
        value = codec.decode(data)
    except Exception as error:
        raise ValueError(f"the bytes do not fit the schema: {type(error).__name__}: {error}") from None
    label = f"{kind} #{codec.schema.id}" if codec.schema.id else kind
    return Decoded(label, plain(value), None, size)


def _json(data: bytes) -> Decoded:
    value = json.loads(data)
    if data.count(b"[") + data.count(b"{") > MOST_DEPTH:
        plain(value)
    return Decoded("json", value, None, len(data))


def _msgpack(data: bytes) -> Decoded:
    try:
        value = msgpack.unpackb(data, strict_map_key=False)
    except Exception as error:
        raise ValueError(f"the bytes are no MessagePack: {error}") from None
    return Decoded("msgpack", plain(value), None, len(data))


def _integer(data: bytes) -> Decoded:
    if len(data) not in (1, 2, 4, 8):
        raise ValueError(f"{len(data)} bytes are no integer")
    number = int.from_bytes(data, "big", signed=True)
    return Decoded("integer", number, str(number), len(data))


def _hex(data: bytes) -> Decoded:
    return Decoded("hex", data, None, len(data))


def hex_dump(data: bytes) -> str:
    """Lines of sixteen bytes: offset, hex, and the characters that are printable ASCII."""
    lines = []
    for start in range(0, min(len(data), MOST_DUMPED), 16):
        part = data[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {text}")
    if len(data) > MOST_DUMPED:
        lines.append(f"… {len(data) - MOST_DUMPED:,} more bytes")
    return "\n".join(lines)


def plain(value: Any, depth: int = 0) -> Any:
    """A value with JSON's types only, and bytes: dates, decimals and uuids are texts."""
    if depth > MOST_DEPTH:
        raise ValueError("the value is nested too deeply")
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, depth + 1) for each in value]
    return str(value)


def pretty(value: Any) -> str:
    """A value as indented JSON; bytes are base64."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=_readable)


def encodable(text: str) -> str:
    """A text that UTF-8 can hold: JSON may name halves of characters that no text has."""
    return text.encode("utf-8", "backslashreplace").decode()


def _readable(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
