"""What a job has done, for a person and for a program."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from kafkapy.tools.output import Column, Output, size_text

__all__ = ["Summary"]

_COLUMNS = (Column("what"), Column("value", right=True, style="bold"))


@dataclass(kw_only=True)
class Summary:
    """The part that all jobs have. A job's own adds fields, which are shown as they are named, and may show more.

    `rows` and `bytes` (of keys and values) are those that were read; `seconds` is wall time.
    """

    job: str
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return dataclasses.asdict(self)

    def show(self, output: Output) -> None:
        """A heading and what the fields say; those that are None or hold several values are left out."""
        if output.as_json:
            output.json(self.as_dict())
            return
        rate = f"{self.rows / self.seconds:,.0f} rows/s" if self.seconds else ""
        output.heading(self.job, f"{self.seconds:.1f} s", *filter(None, [rate]))
        fields = [(each.name, getattr(self, each.name)) for each in dataclasses.fields(self) if each.name != "job"]
        output.rows(
            [
                {"what": name.replace("_", " "), "value": _text(name, value)}
                for name, value in fields
                if value is not None and not isinstance(value, (list, tuple, dict))
            ],
            _COLUMNS,
        )


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if "bytes" in name:
        return f"{value:,} ({size_text(value)})" if value >= 1000 else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
