"""Errors of the log of a coordinator's partition, as clients get them."""

from __future__ import annotations

from typing import Final

from kafkapy import errors
from kafkapy.errors import ErrorCode, KafkaError

_TRANSLATED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def translated(error: KafkaError) -> KafkaError:
    """The retriable error for a log's error; clients look it up again."""
    code = _TRANSLATED.get(error.code)
    return error if code is None else errors.error_for(code, error.message)


def translated_failure(error: Exception) -> KafkaError:
    """The error for callers after a failed append.

    Any exception that is no KafkaError counts as KAFKA_STORAGE_ERROR.
    """
    return translated(error if isinstance(error, KafkaError) else errors.KafkaStorageError())
