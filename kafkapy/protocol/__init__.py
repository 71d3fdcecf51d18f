"""Kafka's wire protocol: declarations of every message (`messages`), how they become bytes (`schema`), headers and
the table of APIs.
"""

from kafkapy._speedups.codec import DecodeError, EncodeError

__all__ = ["DecodeError", "EncodeError"]
