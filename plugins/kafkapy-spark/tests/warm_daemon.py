"""pyspark.daemon with all that its workers import, which each of them would import anew.

A query that is killed a hundred times begins a thousand of them: spark.python.daemon.module names this module.
"""

from __future__ import annotations

import importlib
import sys

import kafkapy_spark.data_source
import kafkapy_spark.exactly_once_stream
import kafkapy_spark.executor_reader
import kafkapy_spark.stream_reader
import kill_plan
import pyspark.sql
from pyspark.daemon import manager

import kafkapy

__all__ = ["kafkapy", "kafkapy_spark", "kill_plan", "pyspark"]

if __name__ == "__main__":
    importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")
    manager()
