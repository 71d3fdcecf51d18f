"""What Spark finds by itself: it imports every top-level module named pyspark_* and registers its `DefaultSource`.

One such module that raises breaks every `load()` of a session, so this one imports nothing but pyspark, and none of
what it stands for until it is used.
"""

from __future__ import annotations

from typing import Any

try:
    from pyspark.sql.datasource import DataSource
except Exception:  # a pyspark without Python data sources, or a broken one: there is nothing to register
    pass
else:

    class DefaultSource(DataSource):
        """Stands for kafkapy_spark.data_source.KafkapyDataSource, which it becomes when it is made."""

        def __new__(cls, options: Any = None) -> Any:
            from kafkapy_spark.data_source import KafkapyDataSource

            return KafkapyDataSource(options if options is not None else {})

        @classmethod
        def name(cls) -> str:
            """The format's name."""
            return "kafkapy"
