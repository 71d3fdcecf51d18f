"""What workers of Spark import, before pyspark.daemon forks them: else each of a thousand imports all of it anew.

In PYTHONPATH of queries whose Python processes are killed. spark.python.daemon.module would not do: Spark heeds it for
tasks only.
"""

from __future__ import annotations

import importlib
import sys

if "pyspark.daemon" in sys.orig_argv:
    for name in (
        *sys.orig_argv[sys.orig_argv.index("pyspark.daemon") + 1 :],
        "pyspark.worker",
        "kafkapy",
        "kafkapy_spark.data_source",
        "kafkapy_spark.exactly_once_stream",
        "kafkapy_spark.executor_reader",
        "kafkapy_spark.stream_reader",
        "kill_plan",
    ):
        importlib.import_module(name)
