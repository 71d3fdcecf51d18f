"""Schemas: decoded and encoded records, the registry's pages, and bytes of attackers."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
from collections.abc import Callable, Iterator

import fastavro
import msgpack
import pytest
from console_site import Person, serving
from google.protobuf import descriptor_pb2
from kafkapy_console.records.decoding import FORMATS, Decoder
from kafkapy_console.records.schemas import Schemas, framed_id
from kafkapy_console.settings import RegistrySettings, Settings
from registry_double import Registry, registry

from kafkapy import testing

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}


@pytest.fixture
def kept() -> Iterator[Registry]:
    with registry() as started:
        yield started


@pytest.fixture
def visitor(broker: testing.Broker, kept: Registry) -> Iterator[Person]:
    settings = Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}, registry=RegistrySettings(kept.url))
    with serving(settings) as url:
        person = Person(url)
        yield person
        person.close()


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + struct.pack(">i", schema_id) + data


def avro(value: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), value)
    return stream.getvalue()


def protobuf_file() -> descriptor_pb2.FileDescriptorProto:
    """message Order { string sku = 1; message Part { int32 n = 1; } }"""
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="sku", number=1, type=9, label=1)
    part = order.nested_type.add(name="Part")
    part.field.add(name="n", number=1, type=5, label=1)
    return file


def test_avro_records_are_decoded_and_searched(
    visitor: Person, kept: Registry, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    schema_id = kept.register(f"{name}-value", {"schema": json.dumps(AVRO)})
    send(name, [framed(schema_id, avro({"sku": f"sku-{n}", "count": n})) for n in range(20)])
    page = visitor.get(f"/topics/{name}/records")
    assert f"Avro #{schema_id}" in page
    assert "sku-7" in page
    events = visitor.events(f"/topics/{name}/search?filter=value.count%20%3D%3D%207")
    assert [kind for kind, _ in events].count("record") == 1
    assert kept.requests.count(f"GET /schemas/ids/{schema_id}") == 1


def test_protobuf_records_are_decoded_with_nested_messages(
    visitor: Person, kept: Registry, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    schema_id = kept.register(f"{name}-value", {"schema": 'syntax = "proto3"; ...', "schemaType": "PROTOBUF"})
    kept.serialized[schema_id] = base64.b64encode(protobuf_file().SerializeToString()).decode()
    send(name, [framed(schema_id, b"\0" + b"\x0a\x03A-1"), framed(schema_id, b"\x04\0\0" + b"\x08\x2a")])
    first, second = visitor.get(f"/topics/{name}/records/0/0"), visitor.get(f"/topics/{name}/records/0/1")
    assert f"Protobuf #{schema_id}" in first
    assert "A-1" in first
    assert "&#34;n&#34;: 42" in second


def test_a_record_is_produced_with_the_newest_schema_of_a_subject(
    visitor: Person, kept: Registry, topic: Callable[..., str]
) -> None:
    name = topic()
    schema_id = kept.register(f"{name}-value", {"schema": json.dumps(AVRO)})
    fields = {"value": '{"sku": "A-1", "count": 3}', "value_encoding": "registry", "value_subject": f"{name}-value"}
    response = visitor.send(f"/topics/{name}/produce", fields, page=f"/topics/{name}/produce")
    page = visitor.get(response.headers["location"])
    assert f"Avro #{schema_id}" in page
    wrong = {**fields, "value": '{"sku": 1}'}
    refused = visitor.send(f"/topics/{name}/produce", wrong, page=f"/topics/{name}/produce", status=400)
    assert f"does not fit schema {schema_id}" in refused.text


def test_an_unknown_schema_is_said_beside_the_bytes(
    visitor: Person, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    send(name, [framed(99, b"\xff\xff")])
    page = visitor.get(f"/topics/{name}/records/0/0")
    assert "404" in page
    assert "ff ff" in page


def test_subjects_versions_differences_and_compatibility(visitor: Person, kept: Registry) -> None:
    subject = "orders/value"
    fields = {"subject": subject, "kind": "AVRO", "schema": json.dumps(AVRO)}
    visitor.send("/schemas", fields, page="/schemas")
    assert subject in visitor.get("/schemas?q=orders")
    newer = json.dumps({**AVRO, "fields": [*AVRO["fields"], {"name": "note", "type": "string", "default": ""}]})  # type: ignore[misc]
    kept.refused = ["READER_FIELD_MISSING_DEFAULT_VALUE: note"]
    refused = visitor.send("/schemas", {**fields, "schema": newer}, page="/schemas", status=400)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.text
    assert list(kept.subjects[subject]) == [1]
    kept.refused = []
    visitor.send("/schemas", {**fields, "schema": newer, "only_check": "1"}, page="/schemas")
    assert list(kept.subjects[subject]) == [1]
    visitor.send("/schemas", {**fields, "schema": newer}, page="/schemas")
    page = visitor.get("/schemas/orders%2Fvalue?version=2&against=1")
    assert 'class="add"' in page
    assert "note" in page
    visitor.send("/schemas/compatibility", {"subject": subject, "level": "FULL"}, page="/schemas/orders%2Fvalue")
    assert kept.levels[subject] == "FULL"
    path = "/schemas/orders%2Fvalue/delete"
    visitor.send(path, {"name": "other"}, page=path, status=400)
    visitor.send(path, {"name": subject, "version": "1"}, page=f"{path}?version=1")
    assert list(kept.subjects[subject]) == [2]


def test_a_registry_that_is_away_gives_a_banner(console: Callable[..., Person]) -> None:
    visitor = console(registry=RegistrySettings("http://127.0.0.1:1"))
    page = visitor.get("/schemas", 502)
    assert "gives no answer" in page
    assert "Traceback" not in page


# --- bytes of attackers -------------------------------------------------------------------------------------------


def decoder() -> Decoder:
    from google.protobuf import descriptor_pool
    from kafkapy_console.records.registry import Schema
    from kafkapy_console.records.schemas import _add_well_known, _avro, _protobuf_codec

    schemas = Schemas(None)
    schemas.registry = object()  # type: ignore[assignment]  # nothing is asked: all schemas are loaded
    schemas._codecs[1] = _avro(Schema(1, "AVRO", json.dumps(AVRO)), {})
    pool = descriptor_pool.DescriptorPool()
    _add_well_known(pool)
    pool.Add(protobuf_file())
    schemas._codecs[2] = _protobuf_codec(Schema(2, "PROTOBUF", ""), pool, protobuf_file())
    return Decoder(schemas)


GOOD = [
    framed(1, avro({"sku": "A-1", "count": 3})),
    framed(2, b"\0\x0a\x03A-1"),
    framed(2, b"\x04\0\0\x08\x2a"),
    json.dumps({"a": [1, {"b": None}]}).encode(),
    msgpack.packb({"a": [1, b"x", {"b": None}]}),
]


@pytest.mark.parametrize("data", GOOD, ids=["avro", "protobuf", "nested", "json", "msgpack"])
def test_cut_and_spoiled_bytes_are_shown_and_raise_nothing(data: bytes) -> None:
    reading = decoder()
    chance = random.Random(7)
    for cut in range(len(data) + 1):
        for form in FORMATS:
            assert reading.decode(data[:cut], form).size == cut
    for _ in range(2000):
        spoiled = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
        for form in ("auto", "registry", "msgpack"):
            reading.decode(bytes(spoiled), form).preview()


def test_random_bytes_are_shown() -> None:
    reading = decoder()
    chance = random.Random(8)
    for _ in range(3000):
        data = chance.randbytes(chance.randrange(60))
        assert reading.decode(data).text is not None
        assert reading.decode(b"\0\0\0\0\2" + data).size == len(data) + 5


def test_what_is_a_frame() -> None:
    assert framed_id(framed(7, b"")) == 7
    assert framed_id(b"\1\0\0\0\7") is None
    assert framed_id(b"\0\0\0") is None
