"""kafka-python's codec is an independent implementation: every message that both know must agree in every version.

Its schema classes say the names, the order, the types and the versions; its codec says the bytes.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import zlib

import kafka.protocol
import pytest
from kafka.protocol.api_data import ApiData
from kafka.protocol.api_message import ApiMessage

from kafkapy.protocol.header import RequestHeader, ResponseHeader
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import ZERO_UUID

for found in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
    if ".old" not in found.name and "generate" not in found.name:
        importlib.import_module(found.name)


def subclasses(cls):
    for sub in cls.__subclasses__():
        yield sub
        yield from subclasses(sub)


THEIRS = {
    cls.__name__: cls for base in (ApiMessage, ApiData) for cls in subclasses(base) if getattr(cls, "_struct", None)
}
OURS = {cls.NAME: cls for entry in ApiKeys for cls in (entry.request, entry.response)}
OURS |= {cls.NAME: cls for cls in (ConsumerProtocolSubscription, ConsumerProtocolAssignment)}
SHARED = sorted(set(OURS) & set(THEIRS))

KINDS = {"bool": "boolean", "bitfield": "int32"}
# Names that kafka-python gives to fields of its own accord.
RENAMED = {
    ("MetadataResponse", "authorized_operations"): ("topic_authorized_operations", "cluster_authorized_operations"),
    ("DescribeClusterResponse", "authorized_operations"): ("cluster_authorized_operations",),
}
# Fields that it gives another default: error messages are null here where the protocol says "" (a broker sends null).
OTHER_DEFAULTS = {
    ("CreatePartitionsRequest", "assignments"),
    ("ListOffsetsRequest", "replica_id"),
}
# What kafka-python does not know yet of Kafka 4.4, compared with Kafka's own layouts in test_against_kafka_4_4.py.
NEWER = {"ApiVersions": 5, "DeleteGroups": 3, "TxnOffsetCommit": 6}


def known_to_both(ours, theirs):
    """The versions that can be compared."""
    return range(ours.VERSIONS.low, min(ours.VERSIONS.high, theirs.max_version) + 1)


@pytest.fixture(params=SHARED)
def name(request):
    return request.param


def test_most_messages_are_known_to_both():
    assert len(SHARED) >= 106


def test_same_versions(name):
    ours, theirs = OURS[name], THEIRS[name]
    newest = NEWER.get(name.removesuffix("Request").removesuffix("Response"))
    assert ours.VERSIONS.high == (newest or theirs.max_version)
    assert newest is None or newest > theirs.max_version
    flexible = theirs._json["flexibleVersions"]
    assert str(ours.FLEXIBLE) == flexible


def struct_of(field):
    return field.struct or (field.element.struct if field.element else None)


def kind_of(field):
    if field.kind != "array":
        return field.kind
    return f"[]{'struct' if field.element.kind == 'struct' else field.element.kind}"


def their_kind(field):
    text = field._json["type"]
    array, text = ("[]", text[2:]) if text.startswith("[]") else ("", text)
    return array + ("struct" if text[0].isupper() else KINDS.get(text, text))


def compare_declarations(message, ours, theirs, carried):
    mine = [field for field in ours if any(version in field.versions for version in carried)]
    their_fields = [field for field in theirs if any(field.for_version_q(version) for version in carried)]
    assert len(mine) == len(their_fields), message
    for field, other in zip(mine, their_fields, strict=True):
        where = f"{message} {field.name}"
        plain = field.name.replace("_", "")
        names = RENAMED.get((message, other.name), (other._name.lower(),))
        assert plain in [name.replace("_", "") for name in names], where
        assert kind_of(field) == their_kind(other), where
        versions = [version for version in carried if version in field.versions]
        assert versions == [version for version in carried if other.for_version_q(version)], where
        for version in versions:
            assert (version in field.nullable) == other.nullable_for_version_q(version), (where, version)
            assert (version in field.tagged) == other.tagged_field_q(version), (where, version)
        if field.tag is not None:
            assert field.tag == other.tag, where
        if versions != carried:
            # What decides whether a value fits into a version that does not carry the field.
            assert field.ignorable == bool(other._ignorable), where
        if field.kind not in ("struct", "array", "uuid", "records") and (message, other.name) not in OTHER_DEFAULTS:
            default = field.default
            if other._json["type"] != "bitfield" and not (field.name == "error_message" and default is None):
                assert default == other.default, where
        inner = struct_of(field)
        if inner is not None:
            compare_declarations(message, inner._fields, other.fields.values(), versions)


def test_same_fields_in_the_same_order(name):
    ours, theirs = OURS[name], THEIRS[name]
    carried = list(known_to_both(ours, theirs))
    compare_declarations(name, ours._fields, theirs._struct._fields, carried)


def to_theirs(field, other, value):
    if value is None:
        return None
    if field.kind == "array":
        return [to_theirs(field.element, getattr(other, "array_of", other), item) for item in value]
    if field.kind == "struct":
        return struct_to_theirs(field.struct._fields, other, value)
    if other._json["type"].endswith("bitfield"):
        return {bit for bit in range(32) if value >> bit & 1}
    if field.kind == "uuid":
        return None if value == ZERO_UUID else value
    return value


def struct_to_theirs(fields, struct, value):
    by_name = {other.name.replace("_", ""): other for other in struct._fields}
    values = {}
    for field in fields:
        other = by_name.get(field.name.replace("_", "")) or by_name.get("authorizedoperations")
        if other is None:
            continue  # of a version that only we know
        values[other.name] = to_theirs(field, other, getattr(value, field.name))
    return struct.data_class(**values)


def absent(value, field, version):
    """Whether kafka-python would send an equal default in the tagged section, where a default is left out."""
    return field.kind == "struct" and version in field.tagged and value == field.struct()


def without_default_structs(cls, instance, version):
    """kafka-python has no default for a tagged struct but null, so both sides get other values than the default."""
    for field in cls._fields:
        value = getattr(instance, field.name)
        if absent(value, field, version):
            inner = field.struct._fields[0]
            setattr(value, inner.name, 7)
        elif field.kind == "struct" and value is not None:
            without_default_structs(field.struct, value, version)
        elif field.kind == "array" and field.element.kind == "struct":
            for item in value or ():
                without_default_structs(field.element.struct, item, version)


def options(theirs):
    return {"header": False} if issubclass(theirs, ApiData) else {}


def test_same_bytes_both_ways_in_every_version(name, random_message):
    ours, theirs = OURS[name], THEIRS[name]
    for version in known_to_both(ours, theirs):
        rng = random.Random(zlib.crc32(f"{name} {version}".encode()))
        for _ in range(6):
            message = random_message(ours, version, rng)
            without_default_structs(ours, message, version)
            if name == "ApiVersionsResponse":
                message.error_code = 0  # with an error kafka-python reads version 0, whatever it asked for
            wire = message.encode(version)
            other = theirs(version=version, **vars_of(theirs, ours, message))
            assert bytes(other.encode(version=version, **options(theirs))) == wire, version
            read = theirs.decode(wire, version=version, **options(theirs))
            if issubclass(theirs, ApiMessage):
                read._header = None  # its decoder leaves the attribute out, its encoder looks at it
            assert bytes(read.encode(version=version, **options(theirs))) == wire, version
            assert ours.decode(wire, version) == message


def vars_of(theirs, ours, message):
    container = struct_to_theirs(ours._fields, theirs._struct, message)
    return {field.name: getattr(container, field.name) for field in theirs._struct._fields}


@pytest.mark.parametrize("client_id", ["client", "", None, "é" * 200])
def test_same_request_headers(client_id):
    from kafka.protocol.api_header import RequestHeader as TheirHeader

    ours = RequestHeader(request_api_key=3, request_api_version=9, correlation_id=-5, client_id=client_id)
    theirs = TheirHeader(request_api_key=3, request_api_version=9, correlation_id=-5, client_id=client_id)
    assert ours.encode(2) == theirs.encode(flexible=True)
    assert ours.encode(1) == theirs.encode(flexible=False)


def test_same_response_headers():
    from kafka.protocol.api_header import ResponseHeader as TheirHeader

    assert ResponseHeader(correlation_id=77).encode(0) == TheirHeader(correlation_id=77).encode(flexible=False)
    assert ResponseHeader(correlation_id=77).encode(1) == TheirHeader(correlation_id=77).encode(flexible=True)
