"""Checks and replies that the coordinator's interfaces for all group types have in common."""

from __future__ import annotations

from typing import Any, TypeVar

from kafkapy.coordinator.result import TOO_LARGE, Later
from kafkapy.errors import ErrorCode, KafkaError, error_for

T = TypeVar("T")


def check_group_id(group_id: str) -> None:
    """Refuse an empty group id: INVALID_GROUP_ID."""
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID)


def writable(reply: Later[T]) -> Later[T]:
    """The reply; UNKNOWN_SERVER_ERROR for a group that is too large to write.

    Nobody else may wait for the reply yet.
    """
    reply.then(_hide_too_large)
    return reply


def _hide_too_large(done: Later[Any]) -> None:
    error = done.error
    if error is not None and isinstance(error, KafkaError) and error.code in TOO_LARGE:
        done.replace_error(error_for(ErrorCode.UNKNOWN_SERVER_ERROR))
