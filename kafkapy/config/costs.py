"""Settings that make a broker slower than its defaults do. docs/performance-findings.md has the measurements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["Cost", "costly_settings"]

FEW_MESSAGES: Final = 10_000
SMALL_BUFFER: Final = 1 << 20


class Cost(NamedTuple):
    """A setting that costs: its key, its value, and what it does."""

    key: str
    value: str
    why: str


def costly_settings(config: BrokerConfig, cores: int) -> Iterator[Cost]:
    """The settings that cost on a machine with so many usable cores.

    Only what somebody has set is named: the defaults cost nothing.
    """
    name = "num.network.threads"
    threads = config.get_int(name)
    if config.is_set(name) and threads > cores:
        why = f"more network threads than usable cores ({cores}) only switch between each other: about 15 % more CPU"
        yield Cost(name, str(threads), why)
    name = "socket.receive.buffer.bytes"
    size = config.get_int(name)
    if config.is_set(name) and 0 <= size < SMALL_BUFFER:
        why = "the system grows a buffer of its own as large batches need it, and does not grow one that is set"
        yield Cost(name, str(size), why)
    name = "log.flush.interval.messages"
    messages = config.get_int(name)
    if config.is_set(name) and messages < FEW_MESSAGES:
        yield Cost(name, str(messages), "appends wait for the disk; replicas on other brokers keep records, too")
