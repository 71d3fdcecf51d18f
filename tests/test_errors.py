"""The table of error codes, the exceptions made from it, and the one mapping of exceptions to the wire."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest
from kafka import errors as kafka_python

from kafkapy import errors
from kafkapy.errors import ConfigError, ErrorCode, KafkaError, RetriableError, code_of, error_class, error_for

OLDER_NAMES = (6, 10, 17, 39)
"""Codes that kafka-python still knows by a name Kafka has given up."""
INDEPENDENT = {
    code: cls for code, cls in kafka_python.kafka_errors.items() if code and code > 0 and code not in OLDER_NAMES
}


def test_codes_are_dense_from_minus_one() -> None:
    assert sorted(ErrorCode) == list(range(-1, max(ErrorCode) + 1))


@pytest.mark.parametrize("code", sorted(INDEPENDENT))
def test_names_agree_with_an_independent_table(code: int) -> None:
    assert ErrorCode(code).name == INDEPENDENT[code].message


def test_codes_are_those_of_kafka_4_4() -> None:
    """tests/reference/kafka_4_4/errors.txt: code, name, and whether a client may try again."""
    text = (Path(__file__).parent / "reference" / "kafka_4_4" / "errors.txt").read_text()
    ours = [f"{each:d} {each.name} {'retriable' if each.retriable else 'final'}" for each in sorted(ErrorCode)]
    assert ours == text.splitlines()


def test_every_code_but_none_has_a_message() -> None:
    assert [code for code in ErrorCode if bool(code.message) == (code is ErrorCode.NONE)] == []


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_every_code_has_an_exception_named_after_it(code: ErrorCode) -> None:
    cls = error_class(code)
    assert getattr(errors, cls.__name__) is cls
    assert cls.code is code
    assert cls.retriable is code.retriable
    assert issubclass(cls, RetriableError) is code.retriable
    assert str(cls()) == code.message
    assert str(cls("why")) == cls("why").message == "why"
    assert code_of(cls()) is code


def test_exceptions_have_the_names_one_expects() -> None:
    from kafkapy.errors import InvalidTopicError, KafkaStorageError, NetworkError, UnknownTopicOrPartitionError

    assert UnknownTopicOrPartitionError.code == 3
    assert InvalidTopicError.code == 17
    assert KafkaStorageError.code == 56
    assert NetworkError.code == 13


# kafka-python's classes that stand for states its own code can be in, and ours cannot.
INTERNALS_OF_KAFKA_PYTHON = {
    "Cancelled",
    "CorrelationIdError",
    "InvalidReceiveError",
    "MetadataEmptyBrokerList",
    "NoError",
    "QuotaViolationError",
    "TooManyInFlightRequests",
    "UnknownBrokerIdError",
}


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        (name, cls)
        for name, cls in vars(kafka_python).items()
        if isinstance(cls, type) and issubclass(cls, Exception) and name not in INTERNALS_OF_KAFKA_PYTHON
    ],
)
def test_exceptions_of_kafka_python_are_found_under_its_names(name: str, theirs: type[kafka_python.KafkaError]) -> None:
    ours = getattr(errors, name)
    assert name in dir(errors)
    if not name.startswith("CorruptRecord"):  # Kafka's clients do try again after a bad CRC
        assert (ours.retriable, ours.invalid_metadata) == (theirs.retriable, theirs.invalid_metadata)
    number = getattr(theirs, "errno", None)
    if number is not None:
        assert ours.errno == number


def test_families_of_errors_can_be_caught_together() -> None:
    from kafkapy.errors import AuthenticationError, AuthorizationError, BufferExhaustedError, KafkaTimeoutError

    assert issubclass(error_class(29), AuthorizationError)
    assert issubclass(error_class(58), AuthenticationError)
    assert issubclass(BufferExhaustedError, KafkaTimeoutError)
    assert [error_class(code).invalid_metadata for code in (3, 13, 14)] == [True, True, False]


def test_a_record_that_cannot_be_deserialized_says_where_it_is() -> None:
    error = errors.RecordDeserializationError("no JSON", "orders", 3, 17)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.topic, copy.partition, copy.offset) == ("no JSON", "orders", 3, 17)


def test_no_exception_of_an_unknown_name() -> None:
    with pytest.raises(AttributeError):
        _ = errors.NoSuchThingError


def test_error_for_keeps_class_and_message() -> None:
    error = error_for(29, "no")
    assert type(error).__name__ == "TopicAuthorizationFailedError"
    assert str(error) == "no"


def test_a_code_from_the_future_is_an_unknown_server_error() -> None:
    assert error_for(12345).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(12345) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_none_is_not_an_exception() -> None:
    with pytest.raises(ValueError, match="not an error"):
        error_class(0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError(), ErrorCode.REQUEST_TIMED_OUT),
        (ConnectionResetError(), ErrorCode.NETWORK_EXCEPTION),
        (OSError(errno.ENOSPC, "full"), ErrorCode.KAFKA_STORAGE_ERROR),
        (OSError(errno.EIO, "bad disk"), ErrorCode.KAFKA_STORAGE_ERROR),
        (ValueError("?"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KeyError("?"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ConfigError("a", "b", "c"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_foreign_exceptions_map_to_a_code(error: Exception, code: ErrorCode) -> None:
    assert code_of(error) is code


def test_exceptions_survive_pickling() -> None:
    copy = pickle.loads(pickle.dumps(error_for(3, "gone")))
    assert isinstance(copy, KafkaError)
    assert (copy.code, str(copy)) == (3, "gone")
    config = pickle.loads(pickle.dumps(ConfigError("k", "v", "r", 4, "f")))
    assert (config.key, config.value, config.reason, config.line, config.source) == ("k", "v", "r", 4, "f")


def test_config_error_says_key_value_reason_and_line() -> None:
    error = ConfigError("num.partitions", "x", "must be a whole number", 12, "server.properties")
    assert str(error) == (
        "Invalid value 'x' for configuration num.partitions: must be a whole number (server.properties, line 12)"
    )


def test_config_error_hides_a_secret() -> None:
    assert "[hidden]" in str(ConfigError("ssl.key.password", None, "must be text"))
