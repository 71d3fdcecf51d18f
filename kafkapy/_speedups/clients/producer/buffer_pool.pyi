from typing import final

@final
class BufferPool:
    total: int
    available: int
    buffer_size: int
    waiting: int
    loop_thread: int
    def __init__(self, total: int, buffer_size: int) -> None: ...
    @property
    def kept_bytes(self) -> int: ...
