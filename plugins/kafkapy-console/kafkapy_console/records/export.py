"""Downloads of records: JSON Lines, CSV and Parquet, decoded and masked as on the page."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from kafkapy_console.errors import BadInputError
from kafkapy_console.records.decoding import Decoded, encodable
from kafkapy_console.records.view import RecordView

__all__ = ["FORMATS", "csv_rows", "json_lines", "parquet", "safe_cell"]

FORMATS: Final = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a cell that begins so: such a text gets an apostrophe before it."""
CHUNK: Final = 256 * 1024


def _json_part(part: Decoded) -> Any:
    return part.text if isinstance(part.value, bytes) else part.value


async def json_lines(batches: AsyncIterator[Sequence[RecordView]]) -> AsyncIterator[bytes]:
    """One object a line; keys and values are JSON where they were decoded to it."""
    async for views in batches:
        yield "".join(
            json.dumps(
                {
                    "topic": view.topic,
                    "partition": view.partition,
                    "offset": view.offset,
                    "timestamp": view.timestamp,
                    "key": _json_part(view.key),
                    "key_format": view.key.format,
                    "value": _json_part(view.value),
                    "value_format": view.value.format,
                    "headers": list(view.headers),
                },
                ensure_ascii=False,
                default=str,
            )
            + "\n"
            for view in views
        ).encode("utf-8", "backslashreplace")


async def csv_rows(batches: AsyncIterator[Sequence[RecordView]]) -> AsyncIterator[bytes]:
    """A heading and a row for each record; a null is an empty cell."""
    yield _csv([COLUMNS])
    async for views in batches:
        yield _csv(
            [
                (
                    view.topic,
                    view.partition,
                    view.offset,
                    view.timestamp,
                    view.time,
                    _cell(view.key),
                    _cell(view.value),
                    json.dumps(list(view.headers), ensure_ascii=False) if view.headers else "",
                )
                for view in views
            ]
        )


def _csv(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _flat(part: Decoded) -> str | None:
    if part.is_null:
        return None
    if isinstance(part.value, (dict, list)):
        return encodable(json.dumps(part.value, ensure_ascii=False, default=str))
    return part.text


def _cell(part: Decoded) -> str:
    return safe_cell(_flat(part) or "")


def safe_cell(text: str) -> str:
    """A text that no spreadsheet runs as a formula."""
    return "'" + text if text.startswith(FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


async def parquet(batches: AsyncIterator[Sequence[RecordView]]) -> AsyncIterator[bytes]:
    """One file with Parquet's own compression. BadInputError without pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet as pq
    except ImportError:
        raise BadInputError("Parquet needs pyarrow: pip install 'kafkapy-console[parquet]'.") from None
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("key", pa.string()),
            ("value", pa.string()),
            ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
        ]
    )
    with tempfile.TemporaryFile() as file:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            async for views in batches:
                rows = [
                    {
                        "topic": view.topic,
                        "partition": view.partition,
                        "offset": view.offset,
                        "timestamp": view.timestamp if view.timestamp >= 0 else None,
                        "key": _flat(view.key),
                        "value": _flat(view.value),
                        "headers": [{"name": name, "value": text} for name, text in view.headers],
                    }
                    for view in views
                ]
                if rows:
                    writer.write_table(pa.Table.from_pylist(rows, schema))
        file.seek(0)
        while chunk := file.read(CHUNK):
            yield chunk
