from typing import Any

class LogFiles:
    @property
    def storage(self) -> Any: ...
    @property
    def config(self) -> Any: ...
