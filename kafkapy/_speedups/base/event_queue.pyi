from typing_extensions import disjoint_base

LOG_LINE: int
SEGMENT_WANTED: int
SEGMENT_ROLLED: int
FLUSH_WANTED: int
APPENDED: int
FOLLOWER_CAUGHT_UP: int
FOLLOWER_LOG_START: int
LOG_OFFLINE: int
HIGH_WATERMARK: int
CONNECTION_CLOSED: int
REQUEST: int

@disjoint_base
class EventQueue:
    def __init__(self, limit: int = ...) -> None: ...
    def fileno(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    def post(self, kind: int, handle: int, argument: int, text: bytes = ...) -> None: ...
    def drain(self) -> list[tuple[int, int, int, bytes]]: ...
