"""Python processes of Spark that a busy machine cannot fail, and that import nothing twice.

In PYTHONPATH of queries that are killed. A process of its own connects to the JVM before it imports pyspark: Spark
waits ten seconds for that ("Python worker failed to connect back"), and longer by no setting. With KAFKAPY_WARM_DAEMONS
a daemon imports what its workers need before it forks them; spark.python.daemon.module is heeded for tasks only.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from typing import Any


def connect_early(path: str) -> None:
    """Connect to the JVM now; who connects to that path later gets this connection."""
    early = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    early.connect(path)
    connect = socket.socket.connect

    def connect_again(self: socket.socket, address: Any) -> None:
        if address != path:
            connect(self, address)
        else:
            socket.socket.connect = connect  # type: ignore[method-assign]
            os.dup2(early.fileno(), self.fileno(), inheritable=False)
            early.close()

    socket.socket.connect = connect_again  # type: ignore[method-assign,assignment]


def import_all(*names: str) -> None:
    """Import what every worker needs."""
    for name in (
        *names,
        "pyspark.worker",
        "kafkapy",
        "kafkapy_spark.data_source",
        "kafkapy_spark.exactly_once_stream",
        "kafkapy_spark.executor_reader",
        "kafkapy_spark.stream_reader",
        "kill_plan",
    ):
        importlib.import_module(name)


if "pyspark.daemon" in sys.orig_argv:
    if os.environ.get("KAFKAPY_WARM_DAEMONS"):
        import_all(*sys.orig_argv[sys.orig_argv.index("pyspark.daemon") + 1 :])
elif "PYTHON_WORKER_FACTORY_SOCK_PATH" in os.environ and "-m" in sys.orig_argv:
    connect_early(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
