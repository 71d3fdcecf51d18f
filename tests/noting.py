"""A double for a part that a test only asks what it was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Noting:
    """Notes the calls of methods that the test does not define."""

    def __init__(self, **values: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, *arguments))
