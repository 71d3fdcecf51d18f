"""The records of a compressed batch, opened as a whole by Python's libraries and read the slow and obvious way."""

import gzip
import importlib.util
import struct
from pathlib import Path

import lz4.frame
import snappy
import zstandard

_PATH = Path(__file__).parent / "record_batch.py"
_SPEC = importlib.util.spec_from_file_location("reference_record_batch", _PATH)
record_batch = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(record_batch)

XERIAL = b"\x82SNAPPY\x00"
HEADER = 61


def open_snappy(payload):
    if not payload.startswith(XERIAL) or len(payload) < 16:
        return snappy.uncompress(payload)
    opened, at = b"", 16
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        if not 0 <= size <= len(payload) - at - 4:
            raise ValueError("block")
        opened += snappy.uncompress(payload[at + 4 : at + 4 + size])
        at += 4 + size
    return opened


def open_zstd(payload):
    opened = b""
    while payload:
        stream = zstandard.ZstdDecompressor().decompressobj()
        opened += stream.decompress(payload)
        if not stream.eof:
            raise ValueError("cut short")
        payload = stream.unused_data
    return opened


def open_lz4(payload):
    opened = b""
    while payload:
        frame = lz4.frame.LZ4FrameDecompressor()
        opened += frame.decompress(payload)
        if not frame.eof:
            raise ValueError("cut short")
        payload = frame.unused_data or b""
    return opened


OPEN = {1: gzip.decompress, 2: open_snappy, 3: open_lz4, 4: open_zstd}


def validate(batch, *, needs_keys=False):
    """("ok" | "corrupt" | "structure", indexes of records without a key, max timestamp) of one whole batch."""
    header = record_batch.parse_header(batch)
    try:
        payload = OPEN[header["attributes"] & 7](bytes(batch[HEADER:]))
    except Exception:  # each library has errors of its own
        return "corrupt", [], -1
    if header["record_count"] <= 0 or header["last_offset_delta"] != header["record_count"] - 1:
        return "structure", [], -1
    try:
        records = record_batch.parse_records(payload, header["record_count"])
    except ValueError:
        return "structure", [], -1
    if [record[1] for record in records] != list(range(len(records))):
        return "structure", [], -1
    bad = [i for i, record in enumerate(records) if needs_keys and record[2] is None]
    times = [header["base_timestamp"] + record[0] for record in records]
    return "ok", bad[:100], max([-1, *times])
