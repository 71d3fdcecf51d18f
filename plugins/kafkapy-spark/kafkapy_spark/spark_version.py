"""Which pyspark there is: one that is too old is refused in one sentence, where the connector is imported."""

from __future__ import annotations

from importlib import import_module
from typing import Final

__all__ = ["require_spark"]

OLDEST: Final = "4.2"
_NEEDED: Final = (
    ("pyspark.sql.datasource", "DataSourceStreamArrowWriter"),
    ("pyspark.sql.streaming.datasource", "SupportsTriggerAvailableNow"),
)
"""What came last of all that is used: writes of Arrow batches in streams, and sources that limit their batches."""


def require_spark() -> None:
    """ImportError, in a sentence, where pyspark is missing or lacks what the connector is built on."""
    try:
        import pyspark
    except ImportError as error:
        raise ImportError(
            f'kafkapy-spark needs pyspark {OLDEST} or newer: pip install "kafkapy-spark[pyspark]" ({error})'
        ) from None
    for module, name in _NEEDED:
        try:
            found = hasattr(import_module(module), name)
        except ModuleNotFoundError:
            found = False
        if not found:
            raise ImportError(
                f"kafkapy-spark needs pyspark {OLDEST} or newer, and this is pyspark {pyspark.__version__}: "
                f"it has no {module}.{name}"
            )
