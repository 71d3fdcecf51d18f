"""Apache Kafka in Apache Spark without a jar: `spark.read.format("kafkapy")`. See README.md."""

from __future__ import annotations

from kafkapy_spark.version import __version__

__all__ = ["__version__"]
