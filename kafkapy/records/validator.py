"""Validation and conversion of the Produce requests that the data plane parks.

The data plane checks v2 batches itself, compressed ones too. It parks batches that the log stores in another form: with
another codec (compression.type), and message formats v0 and v1. A worker thread then returns either records to append
(one v2 batch with offsets from 0 and unchanged producer fields) or an error with the Produce response's messages for
single records (KIP-467).

Source: org.apache.kafka.storage.internals.log.LogValidator, with these differences: a batch that a producer marked
LogAppendTime is always refused (Kafka accepts some and removes the mark), bytes after the last whole v2 batch are
refused instead of cut off, and unreadable compressed data is CORRUPT_MESSAGE, not UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkapy._speedups.records import record_batch
from kafkapy._speedups.records.batch_builder import replace_payload
from kafkapy._speedups.records.memory_records import BatchView, iter_batches
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.records import legacy
from kafkapy.records.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from kafkapy.types import CompressionType

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["RecordRules", "ValidationOutcome", "validate_records"]

_NO_BOUND: Final = 0x7FFFFFFFFFFFFFFF
_NO_TIMESTAMP: Final = -1
_MAX_RECORD_ERRORS: Final = 100
_MAGIC_AT: Final = 16


@dataclass(frozen=True, slots=True)
class RecordRules:
    """A topic's rules for its records, from its configuration.

    Immutable. The control loop creates it, worker threads read it.
    """

    needs_keys: bool = False
    """cleanup.policy contains compact."""
    codec: CompressionType | None = None
    """compression.type; None is "producer": the batch keeps its codec."""
    level: int | None = None
    """compression.<codec>.level; None is the codec's default."""
    log_append_time: bool = False
    """message.timestamp.type is LogAppendTime."""
    timestamp_before_max_ms: int = _NO_BOUND
    timestamp_after_max_ms: int = _NO_BOUND
    max_message_bytes: int = 0x7FFFFFFF
    """max.message.bytes, for the batch as received and as stored."""
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    """Largest decompressed size of a batch in bytes."""


@dataclass(frozen=True, slots=True)
class ValidationOutcome:
    """Records to append, or an error.

    Immutable; a worker creates it, the control loop reads it.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    record_errors: list[tuple[int, str]] = field(default_factory=list)
    """(index in the batch, message), at most 100."""
    records: bytes | None = None
    """One v2 batch with base offset 0, when there is no error."""
    record_count: int = 0
    max_timestamp: int = _NO_TIMESTAMP
    """Largest timestamp in ms; the append time with LogAppendTime."""
    offset_of_max_timestamp: int = 0
    """The first record with the largest timestamp, as a delta from the batch's base offset."""
    changed: bool = False
    """Whether `records` differ from the received bytes: converted, recompressed or stamped."""
    converted: int = 0
    """Number of records that were converted to another format or codec (Kafka's RecordValidationStats)."""
    temporary_bytes: int = 0
    """Bytes of memory that reading and conversion used."""


class _Refused(Exception):
    """Carries the outcome out of the checks."""

    def __init__(self, error: ErrorCode, message: str, record_errors: list[tuple[int, str]] | None = None) -> None:
        super().__init__(message)
        self.outcome = ValidationOutcome(error, message, record_errors or [])


def validate_records(data: Buffer, rules: RecordRules, *, now_ms: int) -> ValidationOutcome:
    """Checks the records of one produced partition and converts them."""
    try:
        if _is_message_set(data):
            return _validate_legacy(data, rules, now_ms)
        batches = list(iter_batches(data))
        if not batches:
            raise _Refused(ErrorCode.CORRUPT_MESSAGE, "the records contain no whole batch")
        if batches[-1].position + batches[-1].size != memoryview(data).nbytes:
            raise _Refused(ErrorCode.CORRUPT_MESSAGE, "the records end inside a batch")
        _check_size(batches[0].size, rules)
        if len(batches) > 1:
            raise _Refused(ErrorCode.INVALID_RECORD, "a Produce request has one v2 batch per partition")
        return _validate_batch(batches[0], rules, now_ms)
    except _Refused as refused:
        return refused.outcome
    except KafkaError as error:
        return ValidationOutcome(code_of(error), str(error))


def _check_size(size: int, rules: RecordRules) -> None:
    if size > rules.max_message_bytes:
        raise _Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is over max.message.bytes ({rules.max_message_bytes})",
        )


def _validate_batch(batch: BatchView, rules: RecordRules, now_ms: int) -> ValidationOutcome:
    batch.ensure_valid()
    count = batch.record_count
    if batch.is_control:
        raise _Refused(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if batch.base_offset != 0:
        raise _Refused(ErrorCode.INVALID_RECORD, f"a produced batch has base offset 0, not {batch.base_offset}")
    if count <= 0 or batch.last_offset_delta != count - 1:
        raise _Refused(
            ErrorCode.INVALID_RECORD,
            f"the batch claims {count} records with offsets up to {batch.last_offset_delta} from its base",
        )
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise _Refused(ErrorCode.INVALID_RECORD, f"producer {batch.producer_id} sent sequence {batch.base_sequence}")
    payload = _opened(batch, rules)
    status, problems, max_timestamp, offset_of_max = record_batch.check_records(
        batch.to_bytes(),
        payload,
        needs_keys=rules.needs_keys,
        log_append_time=rules.log_append_time,
        timestamp_before_max_ms=rules.timestamp_before_max_ms,
        timestamp_after_max_ms=rules.timestamp_after_max_ms,
        now_ms=now_ms,
    )
    if status != record_batch.OK:
        raise _Refused(ErrorCode.INVALID_RECORD, f"the records of the batch do not add up to the {count} it claims")
    _refuse(problems, rules, now_ms)
    codec = batch.codec if rules.codec is None else rules.codec
    append_time = now_ms if rules.log_append_time else None
    changed = True
    converted = 0
    if codec != batch.codec:
        converted = count
        packed = compress(codec, payload, rules.level)
        out = replace_payload(batch, packed, codec=codec, log_append_time=append_time, max_timestamp=max_timestamp)
    elif append_time is not None or max_timestamp != batch.max_timestamp:
        out = replace_payload(
            batch, batch.payload(), codec=codec, log_append_time=append_time, max_timestamp=max_timestamp
        )
    else:
        out = batch.to_bytes()
        changed = False
    _check_size(len(out), rules)
    return ValidationOutcome(
        records=out,
        record_count=count,
        max_timestamp=max_timestamp if append_time is None else append_time,
        offset_of_max_timestamp=offset_of_max if append_time is None else 0,
        changed=changed,
        converted=converted,
        temporary_bytes=payload.nbytes + (len(out) if changed else 0),
    )


def _opened(batch: BatchView, rules: RecordRules) -> memoryview:
    if not batch.codec:
        return batch.payload()
    return decompress(batch.codec, batch.payload(), max_bytes=rules.max_decompressed_bytes)


def _is_message_set(data: Buffer) -> bool:
    view = memoryview(data).cast("B")
    return len(view) > _MAGIC_AT and view[_MAGIC_AT] < 2


def _validate_legacy(data: Buffer, rules: RecordRules, now_ms: int) -> ValidationOutcome:
    opened = legacy.open_message_set(data, max_bytes=rules.max_decompressed_bytes)
    if opened.codec:
        _check_size(memoryview(data).nbytes, rules)
    append_time = now_ms if rules.log_append_time else None
    converted = legacy.up_convert(opened, log_append_time=append_time)
    (batch,) = iter_batches(converted.batch)
    status, problems, max_timestamp, offset_of_max = record_batch.check_records(
        converted.batch,
        needs_keys=rules.needs_keys,
        log_append_time=rules.log_append_time,
        timestamp_before_max_ms=rules.timestamp_before_max_ms,
        timestamp_after_max_ms=rules.timestamp_after_max_ms,
        now_ms=now_ms,
    )
    if status != record_batch.OK:
        raise _Refused(ErrorCode.INVALID_RECORD, "the messages cannot be converted")
    bad = [(index, record_batch.BAD_TIMESTAMP) for index in converted.bad_timestamps]
    _refuse(sorted(problems + bad)[:_MAX_RECORD_ERRORS], rules, now_ms)
    codec = opened.codec if rules.codec is None else rules.codec
    out: Buffer = converted.batch
    if codec:
        level = rules.level if rules.codec is not None else None
        packed = compress(codec, batch.payload(), level)
        out = replace_payload(batch, packed, codec=codec, log_append_time=append_time)
    elif append_time is not None:
        record_batch.stamp_append_time(converted.batch, append_time)
    out = bytes(out)
    _check_size(len(out), rules)
    return ValidationOutcome(
        records=out,
        record_count=converted.record_count,
        max_timestamp=max_timestamp if append_time is None else append_time,
        offset_of_max_timestamp=offset_of_max if append_time is None else 0,
        changed=True,
        converted=converted.record_count,
        temporary_bytes=memoryview(opened.messages).nbytes + len(converted.batch),
    )


def _refuse(problems: list[tuple[int, int]], rules: RecordRules, now_ms: int) -> None:
    if not problems:
        return
    texts = {
        record_batch.NULL_KEY: "a record of a compacted topic must have a key",
        record_batch.BAD_TIMESTAMP: (
            f"the timestamp is not within [{now_ms - rules.timestamp_before_max_ms}, "
            f"{now_ms + rules.timestamp_after_max_ms}] or is marked LogAppendTime, which only a broker may do"
        ),
    }
    late = any(problem == record_batch.BAD_TIMESTAMP for _, problem in problems)
    raise _Refused(
        ErrorCode.INVALID_TIMESTAMP if late else ErrorCode.INVALID_RECORD,
        "records were refused for their timestamps" if late else "records without a key were refused",
        [(index, texts[problem]) for index, problem in problems],
    )
