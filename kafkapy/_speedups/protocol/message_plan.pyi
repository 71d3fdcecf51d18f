from typing import Any

KINDS: dict[str, int]

class Plan:
    cls: type
    version: int
    flexible: bool
    min_size: int
    memory: int
    def __init__(
        self,
        cls: type,
        version: int,
        flexible: bool,
        positional: list[tuple[Any, ...]],
        tagged: list[tuple[Any, ...]],
        absent: list[tuple[Any, ...]],
        min_size: int,
    ) -> None: ...

def min_size_of(kind: int, compact: bool) -> int: ...
