"""Interceptors without a producer: what each of them is given, and that its errors stay with it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.clients.producer.interceptors import ProducerInterceptors, ProducerRecord
from kafkapy.errors import ConfigError

RECORD = ProducerRecord("t", "value")


class Seeing:
    """Keeps what it is given, and gives each record another key."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(record)
        return record._replace(key="k")

    def on_acknowledgement(self, metadata: Any, exception: Any) -> None:
        self.seen.append((metadata, exception))

    def close(self) -> None:
        self.seen.append("closed")


class Breaking:
    """Fails with everything."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("no")

    def on_acknowledgement(self, metadata: Any, exception: Any) -> None:
        raise ValueError("no")

    def close(self) -> None:
        raise ValueError("no")


class Quiet:
    """Has an on_send that returns nothing."""

    def on_send(self, record: ProducerRecord) -> None:
        return None


def test_a_record_has_no_more_than_it_was_given() -> None:
    assert tuple(ProducerRecord("t")) == ("t", None, None, None, None, None)


def test_each_interceptor_goes_on_with_what_the_one_before_returned() -> None:
    first, second = Seeing(), Seeing()
    interceptors = ProducerInterceptors([Breaking(), object(), first, Quiet, Breaking, second])
    assert interceptors
    assert not ProducerInterceptors([])
    assert interceptors.on_send(RECORD) == RECORD._replace(key="k")
    error: Any = KeyError("x")
    metadata: Any = object()
    interceptors.on_acknowledgement(metadata, error)
    interceptors.close()
    assert first.seen == [RECORD, (metadata, error), "closed"]
    assert second.seen == [RECORD._replace(key="k"), (metadata, error), "closed"]


@pytest.mark.parametrize("given", [Quiet, "collections.OrderedDict"])
def test_classes_and_their_names_are_called(given: Any) -> None:
    assert ProducerInterceptors([given]).on_send(RECORD) == RECORD


@pytest.mark.parametrize("wrong", ["nowhere.Missing", "collections.Missing", "unqualified"])
def test_a_name_that_nothing_has_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="cannot be imported"):
        ProducerInterceptors([wrong])
