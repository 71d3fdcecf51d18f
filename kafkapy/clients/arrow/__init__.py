"""Apache Arrow tables of consumers and producers. Imported on first use only.

Needs pyarrow; without it, ModuleNotFoundError with the command that installs it.
"""

from __future__ import annotations

try:
    import pyarrow
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise ModuleNotFoundError("Arrow tables need pyarrow: pip install 'kafkapy[arrow]'", name="pyarrow") from error

__all__ = ["pyarrow"]
