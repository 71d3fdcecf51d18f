"""A record batch of format v2, read the slow and obvious way; the compiled kernels must agree with it."""

import struct

HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = ("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp",
          "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count")  # fmt: skip


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def parse_header(data):
    fields = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True))
    fields["size"] = fields.pop("length") + 12
    return fields


def varint(data, at, bits):
    value = shift = 0
    while True:
        if at >= len(data) or shift > bits:
            raise ValueError("varint")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if value >> bits:
        raise ValueError("varint")
    return (value >> 1) ^ -(value & 1), at


def nullable(data, at):
    length, at = varint(data, at, 32)
    if length < 0:
        return None, at
    if length > len(data) - at:
        raise ValueError("length")
    return bytes(data[at : at + length]), at + length


def parse_records(payload, count):
    """[(timestamp_delta, offset_delta, key, value, [(name, value)])]; ValueError when they do not add up."""
    records, at = [], 0
    for _ in range(count):
        body, at = nullable(payload, at)
        if not body:
            raise ValueError("record")
        timestamp_delta, inner = varint(body, 1, 64)
        offset_delta, inner = varint(body, inner, 32)
        key, inner = nullable(body, inner)
        value, inner = nullable(body, inner)
        header_count, inner = varint(body, inner, 32)
        if not 0 <= header_count <= len(body):
            raise ValueError("headers")
        headers = []
        for _ in range(header_count):
            name, inner = nullable(body, inner)
            if name is None:
                raise ValueError("header name")
            content, inner = nullable(body, inner)
            headers.append((name, content))
        if inner != len(body):
            raise ValueError("record size")
        records.append((timestamp_delta, offset_delta, key, value, headers))
    if at != len(payload):
        raise ValueError("trailing bytes")
    return records
