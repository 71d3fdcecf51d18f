from typing import TypedDict, type_check_only

@type_check_only
class Produce(TypedDict):
    transactional_id: bytes | None
    acks: int
    timeout_ms: int
    topics: list[tuple[bytes, list[tuple[int, bytes | None]]]]

def decode(version: int, body: bytes) -> Produce | None: ...
