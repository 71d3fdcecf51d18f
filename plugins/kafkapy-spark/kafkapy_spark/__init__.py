"""Apache Kafka in Apache Spark without a jar: `spark.read.format("kafkapy")`. See README.md.

Spark imports this in processes that need little of it, and brokers do with their plugins: what stands here is imported
on use. ImportError where pyspark is too old: at the import where pyspark is loaded already, else at the first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kafkapy_spark.spark_version import require_spark
from kafkapy_spark.version import __version__

if TYPE_CHECKING:
    from kafkapy_spark.alias import alias_kafka
    from kafkapy_spark.foreach_batch import foreach_batch
    from kafkapy_spark.lag_listener import LagListener
    from kafkapy_spark.session import configure, read, read_stream

_MODULES: Final = {
    "LagListener": "kafkapy_spark.lag_listener",
    "alias_kafka": "kafkapy_spark.alias",
    "configure": "kafkapy_spark.session",
    "foreach_batch": "kafkapy_spark.foreach_batch",
    "read": "kafkapy_spark.session",
    "read_stream": "kafkapy_spark.session",
}

__all__ = ["LagListener", "__version__", "alias_kafka", "configure", "foreach_batch", "read", "read_stream"]

if sys.modules.get("pyspark") is not None:
    require_spark()


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_spark()
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
