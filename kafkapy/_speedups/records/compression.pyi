from typing import Final, final

from typing_extensions import Buffer

OK: Final[int]
CORRUPT: Final[int]
TOO_LARGE: Final[int]
NO_MEMORY: Final[int]
UNKNOWN_CODEC: Final[int]
DEFAULT_LEVEL: Final[int]
LZ4_V0: Final[int]

@final
class Decompressed: ...

def compress(codec: int, data: Buffer, level: int = ...) -> tuple[int, bytes]: ...
def decompress(codec: int, data: Buffer, max_bytes: int) -> tuple[int, memoryview]: ...
def xxh32(data: Buffer) -> int: ...
