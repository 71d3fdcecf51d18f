"""Errors of the console, and the sentence and the status of each error for a page."""

from __future__ import annotations

from kafkapy.errors import (
    AuthenticationError,
    AuthorizationError,
    ErrorCode,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    NodeNotReadyError,
    UnsupportedVersionError,
)

__all__ = [
    "UNEXPECTED",
    "BadInputError",
    "ConsoleError",
    "ForbiddenError",
    "MissingApiError",
    "NotFoundError",
    "RemoteServiceError",
    "TooBusyError",
    "cluster_is_away",
    "sentence",
    "status_of",
]

MISSING = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.RESOURCE_NOT_FOUND,
}
UNEXPECTED = "The console met an unexpected error; its log has the details."
AWAY = (NoBrokersAvailableError, NodeNotReadyError, KafkaConnectionError, KafkaTimeoutError)


class ConsoleError(Exception):
    """Base of the console's errors: a sentence for a person and an HTTP status."""

    status = 500


class BadInputError(ConsoleError):
    """A form or an address has a value that is not allowed."""

    status = 400


class ForbiddenError(ConsoleError):
    """The user's roles do not allow the action, or the console is read-only."""

    status = 403


class NotFoundError(ConsoleError):
    """The address names nothing that exists."""

    status = 404


class MissingApiError(ConsoleError):
    """The brokers do not serve what the action needs."""

    status = 501


class TooBusyError(ConsoleError):
    """Too many searches and live views run at the same time."""

    status = 503


class RemoteServiceError(ConsoleError):
    """A coordinator or another service (registry, Connect, identity provider) refused or is away."""

    status = 502

    def __init__(self, text: str, remote_status: int | None = None) -> None:
        super().__init__(text)
        self.remote_status = remote_status


def cluster_is_away(error: BaseException) -> bool:
    """Whether no broker answered: a matter of the cluster, not of the request."""
    return isinstance(error, AWAY)


def status_of(error: BaseException) -> int:
    """The HTTP status of an error."""
    if isinstance(error, ConsoleError):
        return error.status
    if isinstance(error, AWAY):
        return 503
    if isinstance(error, (AuthorizationError, AuthenticationError)):
        return 403
    if isinstance(error, UnsupportedVersionError):
        return 501
    if isinstance(error, KafkaError):
        return 404 if error.code in MISSING else 409
    return 400 if isinstance(error, ValueError) else 500


def sentence(error: BaseException) -> str:
    """The error as one sentence without line breaks."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."
