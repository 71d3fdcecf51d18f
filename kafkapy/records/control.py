"""Control records: the markers that end transactions in a log (KIP-98).

    key     int16 version (0), int16 type (0 ABORT, 1 COMMIT)
    value   int16 version (0), int32 coordinator epoch

A control batch holds one control record and has the control and the transactional flag. Source:
org.apache.kafka.common.record.ControlRecordType and EndTransactionMarker.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from kafkapy.errors import InvalidRecordError
from kafkapy.records.batches import BatchView, Record, RecordBatchBuilder, decode_records

__all__ = ["ControlRecordType", "EndTransactionMarker", "build_end_transaction_marker", "read_control_batch"]

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class ControlRecordType(IntEnum):
    """The type in a control record's key.

    UNKNOWN stands for all types that this version does not know; readers skip them.
    """

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    @classmethod
    def of_key(cls, key: bytes | None) -> ControlRecordType:
        """The type in a control record's key.

        InvalidRecordError for a key that is null, short or negative.
        """
        if key is None or len(key) < _KEY.size:
            raise InvalidRecordError(f"the key of a control record has {_KEY.size} bytes, not {len(key or b'')}")
        version, code = _KEY.unpack_from(key)
        if version < 0:
            raise InvalidRecordError(f"control record key of version {version}")
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN


class EndTransactionMarker(NamedTuple):
    """The outcome of a transaction in one partition, from its control record."""

    type: ControlRecordType
    coordinator_epoch: int

    @property
    def committed(self) -> bool:
        """Whether the transaction was committed, not aborted."""
        return self.type is ControlRecordType.COMMIT

    @classmethod
    def of(cls, record: Record) -> EndTransactionMarker:
        """The marker in a control record.

        InvalidRecordError when the record is malformed, or not a commit or abort marker.
        """
        kind = ControlRecordType.of_key(record.key)
        if kind not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
            raise InvalidRecordError(f"control record {kind.name} at offset {record.offset} ends no transaction")
        if record.value is None or len(record.value) < _VALUE.size:
            raise InvalidRecordError(f"a transaction marker's value has at least {_VALUE.size} bytes")
        version, epoch = _VALUE.unpack_from(record.value)
        if version < 0:
            raise InvalidRecordError(f"transaction marker value of version {version}")
        return cls(kind, epoch)


def build_end_transaction_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    committed: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A control batch that commits or aborts a transaction in a partition."""
    builder = RecordBatchBuilder(base_offset=base_offset)
    kind = ControlRecordType.COMMIT if committed else ControlRecordType.ABORT
    builder.append(timestamp_ms, _KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch))
    return builder.build(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def read_control_batch(batch: BatchView) -> EndTransactionMarker | None:
    """The marker in a control batch, or None.

    None for a control record of another type, and for a batch that compaction has emptied. InvalidRecordError for a
    malformed batch or marker.
    """
    if not batch.is_control:
        raise InvalidRecordError(f"the batch at offset {batch.base_offset} is not a control batch")
    records = decode_records(batch)
    if not records:
        return None
    if ControlRecordType.of_key(records[0].key) not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        return None
    return EndTransactionMarker.of(records[0])
