"""Schemas: decoded and encoded records, the registry's pages, and bytes of attackers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest
from console_site import Person, serving
from framed_schemas import AVRO, ORDERS, avro, framed
from google.protobuf import descriptor_pool
from kafkapy_console.records import protoc
from kafkapy_console.records.decoding import FORMATS, Decoder
from kafkapy_console.records.protoc import compiled
from kafkapy_console.records.registry import Schema
from kafkapy_console.records.schemas import Codec, Schemas, _avro, _compiled_codec, framed_id
from kafkapy_console.settings import RegistrySettings, Settings
from registry_double import Registry, registry
from registry_real import URL, RealRegistry

from kafkapy import testing

REAL = pytest.mark.skipif(not URL, reason="KAFKAPY_TEST_REGISTRY names no schema registry")

Kept = Registry | RealRegistry


@pytest.fixture(params=["double", pytest.param("real", marks=REAL)])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    if request.param == "real":
        yield RealRegistry()
        return
    with registry() as started:
        yield started


@pytest.fixture(autouse=True)
def _a_busy_machine_may_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "TIME_LIMIT_S", 3600.0)


@pytest.fixture
def checking(kept: Kept) -> RealRegistry:
    """A registry that checks schemas."""
    if isinstance(kept, Registry):
        pytest.skip("the tests' own registry checks no schema")
    return kept


@pytest.fixture
def visitor(broker: testing.Broker, kept: Kept) -> Iterator[Person]:
    settings = Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}, registry=RegistrySettings(kept.url))
    with serving(settings) as url:
        person = Person(url)
        yield person
        person.close()


def test_avro_records_are_decoded_and_searched(
    visitor: Person, kept: Kept, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    schema_id = kept.register(f"{name}-value", {"schema": json.dumps(AVRO)})
    send(name, [framed(schema_id, avro({"sku": f"sku-{n}", "count": n})) for n in range(20)])
    page = visitor.get(f"/topics/{name}/records")
    assert f"Avro #{schema_id}" in page
    assert "sku-7" in page
    events = visitor.events(f"/topics/{name}/search?filter=value.count%20%3D%3D%207")
    assert [kind for kind, _ in events].count("record") == 1
    if isinstance(kept, Registry):
        assert kept.requests.count(f"GET /schemas/ids/{schema_id}") == 1


def test_protobuf_records_are_decoded_with_nested_messages(
    visitor: Person, kept: Kept, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    schema_id = kept.register(f"{name}-value", {"schema": ORDERS, "schemaType": "PROTOBUF"})
    send(name, [framed(schema_id, b"\0" + b"\x0a\x03A-1"), framed(schema_id, b"\x04\0\0" + b"\x08\x2a")])
    first, second = visitor.get(f"/topics/{name}/records/0/0"), visitor.get(f"/topics/{name}/records/0/1")
    assert f"Protobuf #{schema_id}" in first
    assert "A-1" in first
    assert "&#34;n&#34;: 42" in second


def test_a_protobuf_schema_that_is_not_valid_is_said_beside_the_bytes(
    broker: testing.Broker, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    with registry() as kept:
        broken = kept.register(f"{name}-value", {"schema": "message A {", "schemaType": "PROTOBUF"})
        kept.register("other", {"schema": ORDERS, "schemaType": "PROTOBUF"})
        references = [{"name": "../orders.proto", "subject": "other", "version": 1}]
        leaving = kept.register("more", {"schema": ORDERS, "schemaType": "PROTOBUF", "references": references})
        send(name, [framed(broken, b"\0" + b"\x0a\x03A-1"), framed(leaving, b"\0" + b"\x0a\x03A-2")])
        settings = Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}, registry=RegistrySettings(kept.url))
        with serving(settings) as url:
            visitor = Person(url)
            first, second = visitor.get(f"/topics/{name}/records/0/0"), visitor.get(f"/topics/{name}/records/0/1")
            assert f"schema {broken} cannot be used: " in first
            assert "Reached end of input in message definition" in first
            assert f"schema {leaving} cannot be used: " in second
            assert "is no name of a .proto file" in second
            visitor.close()


def test_a_protobuf_schema_with_maps_optional_fields_and_references(
    visitor: Person, kept: Kept, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    kept.register(f"{name}-orders", {"schema": ORDERS, "schemaType": "PROTOBUF"})
    text = """
        syntax = "proto3";
        package shop;
        import "google/protobuf/timestamp.proto";
        import "orders.proto";
        enum State { NEW = 0; SENT = 1; }
        message Basket {
          map<string, Order.Part> parts = 1;
          optional int32 rank = 2;
          repeated Order orders = 3;
          oneof paid { string card = 4; State state = 5; }
          google.protobuf.Timestamp at = 6;
        }
    """
    references = [{"name": "orders.proto", "subject": f"{name}-orders", "version": 1}]
    body = {"schema": text, "schemaType": "PROTOBUF", "references": references}
    schema_id = kept.register(f"{name}-value", body)
    data = b"\x0a\x07\x0a\x01k\x12\x02\x08\x2a" + b"\x10\0" + b"\x1a\x05\x0a\x03A-1" + b"\x28\x01" + b"\x32\x02\x08\x01"
    send(name, [framed(schema_id, b"\0" + data)])
    record = visitor.get(f"/topics/{name}/records/0/0")
    for part in ('"k": {', '"n": 42', '"rank": 0', '"sku": "A-1"', '"state": "SENT"', "1970-01-01T00:00:01Z"):
        assert part.replace('"', "&#34;") in record
    page = visitor.get(f"/schemas/{name}-value")
    assert f"orders.proto {name}-orders 1" in page


def test_a_new_version_keeps_the_references_of_the_form(visitor: Person, kept: Kept, topic: Callable[..., str]) -> None:
    name = topic()
    kept.register(f"{name}-address", {"schema": json.dumps({**AVRO, "name": "a.Address"})})
    text = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "home", "type": "a.Address"}]})
    fields = {"subject": f"{name}-value", "kind": "AVRO", "schema": text}
    references = {"references": f"a.Address {name}-address 1\r\n"}
    visitor.send("/schemas", {**fields, **references}, page="/schemas")
    assert f"a.Address {name}-address 1" in visitor.get(f"/schemas/{name}-value")
    produced = {
        "value": '{"home": {"sku": "A-1", "count": 3}}',
        "value_encoding": "registry",
        "value_subject": f"{name}-value",
    }
    response = visitor.send(f"/topics/{name}/produce", produced, page=f"/topics/{name}/produce")
    assert "A-1" in visitor.get(response.headers["location"])
    wrong = visitor.send("/schemas", {**fields, "references": "a.Address"}, page="/schemas", status=400)
    assert "A reference is a name, a subject and a version" in wrong.text


def test_json_schema_records_are_decoded(
    visitor: Person, kept: Kept, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    body = {"schema": json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}), "schemaType": "JSON"}
    schema_id = kept.register(f"{name}-value", body)
    send(name, [framed(schema_id, b'{"n": 42}')])
    page = visitor.get(f"/topics/{name}/records/0/0")
    assert f"JSON Schema #{schema_id}" in page
    assert "&#34;n&#34;: 42" in page


def test_records_of_a_deleted_subject_are_decoded(
    visitor: Person, kept: Kept, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    subject = f"{name}-value"
    schema_id = kept.register(subject, {"schema": json.dumps(AVRO)})
    send(name, [framed(schema_id, avro({"sku": "A-1", "count": 3}))])
    path = f"/schemas/{subject}/delete"
    visitor.send(path, {"name": subject}, page=path)
    assert subject not in visitor.get(f"/schemas?q={name}").partition('id="list"')[2]
    assert f"Avro #{schema_id}" in visitor.get(f"/topics/{name}/records/0/0")
    again = {"subject": subject, "kind": "AVRO", "schema": json.dumps(AVRO)}
    visitor.send("/schemas", again, page="/schemas")
    visitor.send(path, {"name": subject, "permanent": "yes"}, page=path)
    visitor.get(f"/schemas/{subject}", 502)


def test_a_deleted_subject_is_listed_when_asked_for_and_deleted_permanently(visitor: Person, kept: Kept) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    newer = json.dumps({**AVRO, "fields": [{"name": "sku", "type": "string"}]})
    for text in (json.dumps(AVRO), newer):
        kept.register(name, {"schema": text})
    path = f"/schemas/{name}/delete"
    visitor.send(path, {"name": name, "version": "1"}, page=f"{path}?version=1")
    visitor.send(path, {"name": name, "version": "1", "permanent": "yes"}, page=f"{path}?version=1")
    visitor.send(path, {"name": name}, page=path)
    assert f'href="{path}"' not in visitor.get(f"/schemas?q={name}")
    assert f'href="{path}"' in visitor.get(f"/schemas?q={name}&deleted=1")
    assert "The subject is deleted already; its 1 versions" in visitor.get(path)
    visitor.send(path, {"name": name, "permanent": "yes"}, page=path)
    assert f'href="{path}"' not in visitor.get(f"/schemas?q={name}&deleted=1")
    visitor.get(path, 502)


def test_what_a_registry_refuses_is_said(visitor: Person, checking: RealRegistry) -> None:
    first, second = f"t-{uuid.uuid4().hex[:12]}", f"t-{uuid.uuid4().hex[:12]}"
    fields = {"subject": first, "kind": "AVRO", "schema": json.dumps(AVRO)}
    visitor.send("/schemas", fields, page="/schemas")
    incompatible = json.dumps({**AVRO, "fields": [{"name": "sku", "type": "int"}]})
    for more in ({}, {"only_check": "1"}):
        refused = visitor.send("/schemas", {**fields, **more, "schema": incompatible}, page="/schemas", status=400)
        assert "The schema is not compatible (BACKWARD): " in refused.text
        assert "string" in refused.text
    no_schema = visitor.send("/schemas", {**fields, "schema": '{"type": "recrd"}'}, page="/schemas", status=502)
    assert "The schema registry answered 422: Invalid" in no_schema.text
    # A schema that another one refers to stays.
    text = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Order"}]})
    body = {"schema": text, "references": [{"name": "Order", "subject": first, "version": 1}]}
    checking.register(second, body)
    path = f"/schemas/{first}/delete"
    used = visitor.send(path, {"name": first}, page=path, status=502)
    assert "One or more references exist" in used.text


def test_a_record_is_produced_with_the_newest_schema_of_a_subject(
    visitor: Person, kept: Kept, topic: Callable[..., str]
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


def test_subjects_versions_differences_and_compatibility(visitor: Person, kept: Kept) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    subject, at = f"{name}/value", f"/schemas/{name}%2Fvalue"
    fields = {"subject": subject, "kind": "AVRO", "schema": json.dumps(AVRO)}
    visitor.send("/schemas", fields, page="/schemas")
    assert subject in visitor.get(f"/schemas?q={name}")
    note = {"name": "note", "type": "string"}
    older_fields: list[object] = list(AVRO["fields"])
    without_default = json.dumps({**AVRO, "fields": [*older_fields, note]})
    if isinstance(kept, Registry):
        kept.refused = ["READER_FIELD_MISSING_DEFAULT_VALUE: note"]
    refused = visitor.send("/schemas", {**fields, "schema": without_default}, page="/schemas", status=400)
    assert "note" in refused.text.partition('class="banner')[2].partition("</div>")[0]
    assert kept.versions(subject) == [1]
    if isinstance(kept, Registry):
        kept.refused = []
    newer = json.dumps({**AVRO, "fields": [*older_fields, {**note, "default": ""}]})
    visitor.send("/schemas", {**fields, "schema": newer, "only_check": "1"}, page="/schemas")
    assert kept.versions(subject) == [1]
    visitor.send("/schemas", {**fields, "schema": newer}, page="/schemas")
    page = visitor.get(f"{at}?version=2&against=1")
    assert 'class="add"' in page
    assert "note" in page
    assert "(of the registry)" in page
    visitor.send("/schemas/compatibility", {"subject": subject, "level": "FULL"}, page=at)
    assert kept.level(subject) == "FULL"
    assert "Compatibility <strong>FULL</strong>." in visitor.get(at)
    path = f"{at}/delete"
    visitor.send(path, {"name": "other"}, page=path, status=400)
    visitor.send(path, {"name": subject, "version": "1"}, page=f"{path}?version=1")
    assert kept.versions(subject) == [2]


def test_a_registry_that_is_away_gives_a_banner(console: Callable[..., Person]) -> None:
    visitor = console(registry=RegistrySettings("http://127.0.0.1:1"))
    page = visitor.get("/schemas", 502)
    assert "gives no answer" in page
    assert "Traceback" not in page


def test_a_request_that_reads_is_repeated_when_a_kept_connection_closes(broker: testing.Broker) -> None:
    """Servers close idle connections, and Karapace's closes one after an answer with status 500."""
    with registry() as kept:
        settings = Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}, registry=RegistrySettings(kept.url))
        with serving(settings) as url:
            visitor = Person(url)
            visitor.get("/schemas")
            kept.dropped = 1
            visitor.get("/schemas")
            fields = {"level": "FULL"}
            token = visitor.token("/schemas")
            kept.dropped = 1
            answer = visitor.http.post("/schemas/compatibility", data={"_csrf": token, **fields})
            assert answer.status_code == 502
            assert "gives no answer (RemoteProtocolError)" in answer.text
            visitor.close()


# --- texts of .proto files ----------------------------------------------------------------------------------------


FULL = """
/* a comment; */ syntax = "proto3"; // another
package a.b;
import public "dir/other.proto";
import "google/protobuf/descriptor.proto";
option java_package = "x;y{";
extend google.protobuf.FieldOptions { string tag = 50000; }
message Full {
  string message = 1;
  repeated int32 loose = 2 [(tag) = "a]b;", packed = false];
  map<string, a.b.E> my_mapField = 0x3;
  optional string rank = 4;
  oneof x_ { string s = 5; Inner i = 6; } ;
  message Inner {
    .a.b.Full up = 1; Deep d = 2; reserved 5, 7 to 9; reserved "q"; message Deep { E e = 010; }
    enum E { option allow_alias = true; Z = 0; ZZ = 0; N = -1 [deprecated = true]; }
  }
}
enum E { reserved 4; A = 0; package = 3; }
service S { rpc Do (Full) returns (stream Full) { option deprecated = false; } }
"""


OTHER = 'syntax = "proto3"; message Other { }'


def codec(text: str) -> Codec:
    return _compiled_codec(Schema(1, "PROTOBUF", text), {"a.proto": text}, "a.proto")


def test_a_text_with_all_that_proto3_has() -> None:
    files = compiled({"full.proto": FULL, "dir/other.proto": OTHER}, "full.proto")
    names = [each.name for each in files.file]
    assert names.index("dir/other.proto") < names.index("full.proto")
    assert "google/protobuf/timestamp.proto" in names
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    full = pool.FindMessageTypeByName("a.b.Full")
    assert [each.name for each in full.nested_types] == ["MyMapFieldEntry", "Inner"]
    assert [each.name for each in full.oneofs] == ["x_", "_rank"]
    assert not full.fields_by_name["loose"].is_packed
    assert full.fields_by_name["rank"].has_presence
    deep = full.nested_types_by_name["Inner"].fields_by_name["d"].message_type.fields_by_name["e"]
    assert (deep.number, deep.enum_type.full_name) == (8, "a.b.Full.Inner.E")


def test_proto2_with_groups_and_extensions() -> None:
    text = """
        syntax = "proto2";
        package p;
        message A { required int32 n = 1; repeated group Part = 2 { optional string s = 3; } extensions 100 to max; }
        extend A { optional string more = 100; }
    """
    value = codec(text).decode(b"\0" + b"\x08\x2a" + b"\x13\x1a\x01x\x14" + b"\xa2\x06\x01y")
    assert value == {"n": 42, "part": [{"s": "x"}], "[p.more]": "y"}


def test_editions_have_presence_as_their_features_say() -> None:
    text = "edition = '2023'; message A { int32 n = 1; int32 m = 2 [features.field_presence = IMPLICIT]; }"
    assert codec(text).decode(b"\0" + b"\x08\0" + b"\x10\0") == {"n": 0}


def test_any_holds_a_well_known_type_that_the_schema_does_not_import() -> None:
    kept = codec('syntax = "proto3"; import "google/protobuf/any.proto"; message A { google.protobuf.Any a = 1; }')
    value = {"a": {"@type": "type.googleapis.com/google.protobuf.Duration", "value": "3s"}}
    assert kept.decode(kept.encode(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "message A {",
        "message A { int32 n 1; }",
        'import "a\n.proto";',
        'import "missing.proto";',
        'import "/etc/passwd";',
        'import "../said";',
        "/* open",
        "option a = { ;",
        "message M {" * 100_000,
        f"message A {{ int32 n = {'9' * 5000}; }}",
        "edition = '1'; ",
        "class A { }",
        "\0\n" * 10_000,
        "\ud800",
        "x" * (protoc.MOST_BYTES + 1),
    ],
    ids=range(15),
)
def test_texts_that_are_no_proto_files(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        compiled({"a.proto": text}, "a.proto")
    assert len(str(refused.value)) <= protoc.MOST_SAID


@pytest.mark.parametrize(
    "name",
    ["", "/", "/tmp/b.proto", "../b.proto", "a/../../b.proto", "a//b.proto", "./b.proto", "b/", "..\\b", "b\0", ".."],
)
def test_names_that_leave_the_directory_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_bytes", lambda *_: pytest.fail("a file is written"))
    with pytest.raises(ValueError, match=r"is no name of a \.proto file"):
        compiled({"a.proto": ORDERS, name: ORDERS}, "a.proto")


@pytest.mark.parametrize("name", ["a.proto/b.proto", "b" * 5000])
def test_names_that_no_file_can_have_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        compiled({"a.proto": ORDERS, name: ORDERS}, "a.proto")


@pytest.mark.parametrize("name", ["grpc_tools/protoc.py", "grpc_tools.py", "sitecustomize.py", "said", "compiled"])
def test_names_of_programs_and_of_own_files_are_names_only(name: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    files = compiled({"a.proto": ORDERS, name: f"open({str(trace)!r}, 'w')"}, "a.proto")
    assert "a.proto" in [each.name for each in files.file]
    assert not trace.exists()


def test_a_protoc_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started = recorded(monkeypatch)
    monkeypatch.setattr(protoc, "COMMAND", (sys.executable, "-c", "while True: pass"))
    monkeypatch.setattr(protoc, "TIME_LIMIT_S", 0.1)
    with pytest.raises(ValueError, match="protoc was not ready after"):
        compiled({"a.proto": ORDERS}, "a.proto")
    assert [each.returncode for each in started] == [-9]


def test_a_protoc_that_crashes_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "COMMAND", (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"))
    with pytest.raises(ValueError, match="protoc ended with status -9"):
        compiled({"a.proto": ORDERS}, "a.proto")


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that start from now on."""
    started: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    return started


def test_spoiled_proto_texts_raise_nothing_else() -> None:
    chance = random.Random(9)
    for _ in range(25):
        spoiled = list(FULL)
        for _ in range(chance.randint(1, 4)):
            spoiled[chance.randrange(len(spoiled))] = chance.choice("{}[]()<>=;\"'/*. 0a\n-\ud800")
        with suppress(ValueError):
            compiled({"full.proto": "".join(spoiled), "dir/other.proto": OTHER}, "full.proto")


# --- bytes of attackers -------------------------------------------------------------------------------------------


def decoder() -> Decoder:
    schemas = Schemas(None)
    schemas.registry = object()  # type: ignore[assignment]  # nothing is asked: all schemas are loaded
    schemas._codecs[1] = _avro(Schema(1, "AVRO", json.dumps(AVRO)), {})
    schemas._codecs[2] = _compiled_codec(Schema(2, "PROTOBUF", ORDERS), {"orders.proto": ORDERS}, "orders.proto")
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
