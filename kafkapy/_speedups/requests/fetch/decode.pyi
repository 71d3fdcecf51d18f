from typing import TypedDict, type_check_only

@type_check_only
class Fetch(TypedDict):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[tuple[bytes, int, int, int, int, int, int]]
    forgotten: list[tuple[bytes, int]]

def decode(version: int, body: bytes) -> Fetch | None: ...
