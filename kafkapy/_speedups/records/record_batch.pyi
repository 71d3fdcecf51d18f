from typing import Final

from typing_extensions import Buffer

STATUS_NAMES: Final[dict[int, str]]
CODECS: dict[str, int]
OK: Final[int]
INCOMPLETE: Final[int]
BAD_LENGTH: Final[int]
BAD_MAGIC: Final[int]
BAD_CRC: Final[int]
BAD_STRUCTURE: Final[int]
NULL_KEY: Final[int]
BAD_TIMESTAMP: Final[int]
HEADER_SIZE: Final[int]

def parse_header(data: Buffer) -> tuple[int, dict[str, int]]: ...
def check_crc(data: Buffer) -> bool: ...
def stamp(data: Buffer, base_offset: int, leader_epoch: int) -> None: ...
def stamp_append_time(data: Buffer, append_time_ms: int) -> None: ...
def stamp_max_timestamp(data: Buffer, max_timestamp: int) -> None: ...
def refresh_crc(data: Buffer) -> None: ...
def check_records(
    data: Buffer,
    payload: Buffer | None = None,
    *,
    needs_keys: bool = False,
    log_append_time: bool = False,
    timestamp_before_max_ms: int = 0x7FFFFFFFFFFFFFFF,
    timestamp_after_max_ms: int = 0x7FFFFFFFFFFFFFFF,
    now_ms: int = 0,
) -> tuple[int, list[tuple[int, int]], int, int]: ...
