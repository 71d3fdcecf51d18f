from typing import Final

from typing_extensions import Buffer

OK: Final[int]
INCOMPLETE: Final[int]
BAD_LENGTH: Final[int]
BAD_MAGIC: Final[int]
BAD_CRC: Final[int]
BAD_STRUCTURE: Final[int]
COMPRESSED: Final[int]

def from_records(
    records: Buffer,
    record_count: int,
    magic: int,
    *,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None = None,
    first_offset: int = ...,
    relative: bool = False,
) -> tuple[bytes, int, int, int]: ...
def to_records(
    messages: Buffer, magic: int, *, timestamp: int | None = None, marks_count: bool = True
) -> tuple[int, bytes, int, int, int, list[int]]: ...
