"""What is let go of bit by bit."""

from __future__ import annotations

import weakref
from typing import Any

from kafkapy._speedups.protocol.discard import discard
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest


class Thing:
    """Something whose end can be seen."""


def test_everything_inside_is_gone() -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    request = DeleteTopicsRequest(topic_names=["a"] * 1000)
    things: list[Any] = [
        request,
        {i: [thing] for i in range(1000)},
        {(i, "x") for i in range(1000)},
        [[thing]] * 3,
        None,
    ]
    del thing, request
    discard(things)
    assert things == []
    assert seen() is None


def test_what_somebody_else_holds_is_left_as_it_is() -> None:
    shared = list(range(1000))
    table = dict.fromkeys(range(1000), shared)
    discard([[shared], {"kept": table}, DeleteTopicsRequest(topic_names=shared)])
    assert len(shared) == len(table) == 1000
