from typing import Final

from typing_extensions import Buffer

OK: Final[int]
BAD_STRUCTURE: Final[int]
CORRUPT: Final[int]
TOO_LARGE: Final[int]
NO_MEMORY: Final[int]
OVER_BUDGET: Final[int]

def check(
    data: Buffer,
    *,
    needs_keys: bool = ...,
    log_append_time: bool = ...,
    timestamp_before_max_ms: int = ...,
    timestamp_after_max_ms: int = ...,
    now_ms: int = ...,
    budget: int = ...,
    piece: int = ...,
    times: int = ...,
) -> tuple[int, list[tuple[int, int]], int, int, int]: ...
def count_possible(data: Buffer) -> bool: ...
