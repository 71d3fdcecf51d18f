"""Kafka's wire protocol: declarations of every message (`messages`), how they become bytes (`schema`), headers and
the table of APIs.
"""

from kafkapy._speedups.protocol.codec import DecodeError
from kafkapy._speedups.protocol.encoder import EncodeError

__all__ = ["DecodeError", "EncodeError"]
