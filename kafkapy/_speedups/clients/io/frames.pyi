from typing import Any

class RequestFrame:
    correlation_id: int

class ResponseFrame:
    context: Any

class BytesFrame(RequestFrame):
    def __init__(self, frame: bytes) -> None: ...

class BytesResponse(ResponseFrame):
    @property
    def frame(self) -> memoryview: ...
