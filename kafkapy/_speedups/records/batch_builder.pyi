from collections.abc import Iterable
from typing import Self

from typing_extensions import Buffer, disjoint_base

from kafkapy._speedups.records.memory_records import BatchView

@disjoint_base
class RecordBatchBuilder:
    def __new__(
        cls, max_size: int = 0x7FFFFFFF, *, base_offset: int = 0, delete_horizon_ms: int | None = None
    ) -> Self: ...
    def __len__(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def offset_of_max_timestamp(self) -> int: ...
    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        *,
        offset: int | None = None,
    ) -> int | None: ...
    def payload_bytes(self) -> bytes: ...
    def build(
        self,
        codec: int = 0,
        *,
        compressed: bytes | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = -1,
        log_append_time: int | None = None,
        last_offset: int | None = None,
    ) -> bytes: ...

def replace_payload(
    batch: BatchView,
    payload: Buffer,
    *,
    codec: int,
    log_append_time: int | None = None,
    max_timestamp: int | None = None,
) -> bytes: ...
