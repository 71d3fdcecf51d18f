"""The connection to the cluster that the parts of an exactly-once write have in one process.

Spark uses Python processes again, for planning and committing as for tasks: connections stay open between batches.
"""

from __future__ import annotations

import json
import os
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Final, TypeVar

from kafkapy.clients.background import BackgroundLoop
from kafkapy_spark.control_topic import ControlTopic
from kafkapy_spark.transactions import TransactionClient

__all__ = ["SinkSession"]

T = TypeVar("T")

MAX_SESSIONS: Final = 2
"""In one process, whatever their configurations."""

_open: dict[str, SinkSession] = {}


class SinkSession:
    """A client and the thread of its loop; used by one thread. `connected` gives one that stays; one that is made
    otherwise is to be closed, or used as a context manager."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        """KafkaError."""
        self.client = TransactionClient(kafka)
        self.control = ControlTopic(self.client)
        self._background = BackgroundLoop("kafkapy-sink")
        self.timeout_ms: int | None = None
        self.two_phases: bool | None = None
        """Whether the brokers allow transactions without a timeout (KIP-939); None: nobody has asked yet."""
        try:
            self._background.run(self.client.start())
        except BaseException:
            self._background.stop()
            raise

    @classmethod
    def connected(cls, kafka: Mapping[str, str]) -> SinkSession:
        """The process's session with this configuration. KafkaError."""
        # A child that is forked has its parent's table, and none of its threads.
        place = json.dumps([os.getpid(), dict(kafka)], sort_keys=True)
        session = _open.pop(place, None) or cls(kafka)
        _open[place] = session
        while len(_open) > MAX_SESSIONS:
            _open.pop(next(iter(_open))).close()
        return session

    def __enter__(self) -> SinkSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Waits for a coroutine of the client's."""
        return self._background.run(coroutine)

    def close(self) -> None:
        """Ends the connections and the thread."""
        if not self._background.foreign:
            self._background.run(self.client.close())
        self._background.stop()
