"""Kafka's wire protocol: messages, their encoding, headers and the table of APIs.

`messages` declares every message, `schema` is the language of the declarations, `registry` the table.
"""

from kafkapy._speedups.protocol.codec import DecodeError
from kafkapy._speedups.protocol.encoder import EncodeError

__all__ = ["DecodeError", "EncodeError"]
