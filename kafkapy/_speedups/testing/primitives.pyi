from collections.abc import Iterable
from typing import Any

from typing_extensions import Buffer

def read(data: Buffer, plan: str) -> tuple[list[Any], int]: ...
def write(plan: str, values: Iterable[Any]) -> bytes: ...
