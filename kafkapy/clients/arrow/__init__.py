"""Apache Arrow tables of consumers and producers. Needs pyarrow; imported on first use only.

ModuleNotFoundError says how to install pyarrow where it is missing.
"""

from __future__ import annotations

try:
    import pyarrow
except ModuleNotFoundError as error:
    if error.name != "pyarrow":
        raise
    raise ModuleNotFoundError("Arrow tables need pyarrow: pip install 'kafkapy[arrow]'", name="pyarrow") from error

__all__ = ["pyarrow"]
