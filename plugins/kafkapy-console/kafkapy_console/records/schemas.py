"""Decoders and encoders of schemas: Avro by fastavro, Protobuf by protoc and its library, JSON Schema as JSON.

A framed value is a zero byte, the schema's id in four bytes, and the data. Protobuf has a list of indexes between them
that names the message. Source: the wire format of Confluent's serializers.
"""

from __future__ import annotations

import asyncio
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from kafkapy_console.errors import BadInputError, ConsoleError
from kafkapy_console.records.protoc import compiled
from kafkapy_console.records.registry import Registry, Schema

__all__ = ["FRAME", "Codec", "Schemas", "framed_id"]

FRAME = 5
"""Bytes before the data."""
MOST_REFERENCES = 100
MOST_INDEXES = 32


@dataclass(frozen=True)
class Codec:
    """A schema that is ready to use."""

    schema: Schema
    decode: Callable[[bytes], Any]
    """The data behind the frame as a value of JSON's types (and bytes). Raises any error for other data."""
    encode: Callable[[Any], bytes]
    """A value to the data behind the frame."""


def framed_id(data: bytes) -> int | None:
    """The schema id of a framed value, None for other data."""
    if len(data) < FRAME or data[0] != 0:
        return None
    return int(struct.unpack_from(">i", data, 1)[0])


class Schemas:
    """Codecs by schema id. A registry that fails is asked again after a while."""

    def __init__(self, registry: Registry | None, local_dir: Path | None = None) -> None:
        self.registry = registry
        self._local_dir = local_dir
        self._codecs: dict[int, Codec] = {}
        self._local: dict[str, Codec] | None = None

    def ready(self, schema_id: int) -> Codec | None:
        """The codec of an id that `load` has loaded."""
        return self._codecs.get(schema_id)

    async def load(self, schema_id: int) -> Codec:
        """The codec of an id. ConsoleError when the registry has none, or the schema is not valid."""
        found = self._codecs.get(schema_id)
        if found is None:
            if self.registry is None:
                raise ConsoleError("No schema registry is configured.")
            found = await self._built(await self.registry.by_id(schema_id))
            self._codecs[schema_id] = found
        return found

    async def newest(self, subject: str) -> Codec:
        """The codec of the newest version of a subject."""
        if self.registry is None:
            raise ConsoleError("No schema registry is configured.")
        return await self.load((await self.registry.version(subject, "latest")).id)

    @property
    def local(self) -> dict[str, Codec]:
        """Codecs of the files of the schema directory: name.avsc, and name.desc (FileDescriptorSet) of Protobuf."""
        if self._local is None:
            self._local = {}
            files = [] if self._local_dir is None else sorted(self._local_dir.iterdir())
            for file in files:
                if file.suffix == ".avsc":
                    schema = Schema(0, "AVRO", file.read_text(encoding="utf-8"))
                    self._local[file.stem] = _avro(schema, {})
                elif file.suffix == ".desc":
                    self._local |= _local_protobuf(file)
        return self._local

    async def _built(self, schema: Schema) -> Codec:
        try:
            if schema.kind == "AVRO":
                named: dict[str, Any] = {}
                await self._avro_references(schema, named, set())
                return _avro(schema, named)
            if schema.kind == "PROTOBUF":
                return await self._protobuf(schema)
            return Codec(schema, json.loads, _json_bytes)
        except ConsoleError:
            raise
        except Exception as error:
            raise ConsoleError(f"Schema {schema.id} cannot be used: {type(error).__name__}: {error}") from None

    async def _avro_references(self, schema: Schema, named: dict[str, Any], seen: set[tuple[str, int]]) -> None:
        assert self.registry is not None
        for _, subject, version in schema.references:
            if (subject, version) in seen:
                continue
            seen.add((subject, version))
            if len(seen) > MOST_REFERENCES:
                raise ConsoleError(f"Schema {schema.id} refers to more than {MOST_REFERENCES} schemas.")
            found = await self.registry.version(subject, version)
            await self._avro_references(found, named, seen)
            fastavro.parse_schema(json.loads(found.text), named_schemas=named)

    async def _protobuf(self, schema: Schema) -> Codec:
        name = f"schema-{schema.id}.proto"
        files = {name: schema.text}
        await self._protobuf_references(schema, files)
        try:
            return await asyncio.to_thread(_compiled_codec, schema, files, name)
        except (ValueError, TypeError) as error:
            raise ConsoleError(f"Protobuf schema {schema.id} cannot be used: {error}") from None

    async def _protobuf_references(self, schema: Schema, files: dict[str, str]) -> None:
        assert self.registry is not None
        for name, subject, version in schema.references:
            if name in files:
                continue
            if len(files) > MOST_REFERENCES:
                raise ConsoleError(f"Schema {schema.id} refers to more than {MOST_REFERENCES} schemas.")
            found = await self.registry.version(subject, version)
            files[name] = found.text
            await self._protobuf_references(found, files)


# --- Avro ---------------------------------------------------------------------------------------------------------


def _avro(schema: Schema, named: dict[str, Any]) -> Codec:
    parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=dict(named))

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow the Avro value")
        return value

    def encode(value: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        return stream.getvalue()

    return Codec(schema, decode, encode)


# --- Protobuf -----------------------------------------------------------------------------------------------------


def _compiled_codec(schema: Schema, files: dict[str, str], name: str) -> Codec:
    """The codec of the file of this name. ValueError or TypeError for texts that are not valid."""
    pool = descriptor_pool.DescriptorPool()
    main = descriptor_pb2.FileDescriptorProto()
    for each in compiled(files, name).file:
        pool.Add(each)
        if each.name == name:
            main = each
    return _protobuf_codec(schema, pool, main)


def _protobuf_codec(
    schema: Schema, pool: descriptor_pool.DescriptorPool, file: descriptor_pb2.FileDescriptorProto
) -> Codec:
    def decode(data: bytes) -> Any:
        indexes, start = _indexes(data)
        found = _parsed(_class(pool, _message_name(file, indexes)), data[start:])
        return json_format.MessageToDict(found, preserving_proto_field_name=True, descriptor_pool=pool)

    def encode(value: Any) -> bytes:
        instance = _class(pool, _message_name(file, [0]))()
        json_format.ParseDict(value, instance, descriptor_pool=pool)
        return b"\0" + instance.SerializeToString()

    return Codec(schema, decode, encode)


def _local_protobuf(file: Path) -> dict[str, Codec]:
    files = descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    codecs = {}
    for each in files.file:
        for kind in each.message_type:
            name = f"{each.package}.{kind.name}" if each.package else kind.name
            codecs[name] = _plain_protobuf(name, pool)
    return codecs


def _plain_protobuf(name: str, pool: descriptor_pool.DescriptorPool) -> Codec:
    def decode(data: bytes) -> Any:
        found = _parsed(_class(pool, name), data)
        return json_format.MessageToDict(found, preserving_proto_field_name=True, descriptor_pool=pool)

    def encode(value: Any) -> bytes:
        instance = _class(pool, name)()
        json_format.ParseDict(value, instance, descriptor_pool=pool)
        return bytes(instance.SerializeToString())

    return Codec(Schema(0, "PROTOBUF", name), decode, encode)


def _class(pool: descriptor_pool.DescriptorPool, name: str) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _parsed(kind: Any, data: bytes) -> Any:
    found = kind()
    found.ParseFromString(data)
    return found


def _message_name(file: descriptor_pb2.FileDescriptorProto, indexes: list[int]) -> str:
    """The name of a message by its place in the file: an index for each level of nesting."""
    kinds, names = file.message_type, [file.package] if file.package else []
    for index in indexes:
        if not 0 <= index < len(kinds):
            raise ValueError(f"the schema has no message {indexes}")
        names.append(kinds[index].name)
        kinds = kinds[index].nested_type
    return ".".join(names)


def _indexes(data: bytes) -> tuple[list[int], int]:
    """The indexes of the message and the place of the data: zigzag varints, a single 0 for the first message."""
    count, at = _varint(data, 0)
    if not 0 <= count <= MOST_INDEXES:
        raise ValueError("the list of message indexes is not valid")
    if count == 0:
        return [0], at
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    return indexes, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ValueError("the list of message indexes is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def framed(codec: Codec, value: Any) -> bytes:
    """A value with its frame. BadInputError for a value that does not fit the schema."""
    try:
        data = codec.encode(value)
    except Exception as error:
        raise BadInputError(f"The value does not fit schema {codec.schema.id}: {error}") from None
    return b"\0" + struct.pack(">i", codec.schema.id) + data
