"""What members of a classic group tell each other: Kafka's bytes, older and newer versions, and damaged ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from kafkapy.clients.consumer.membership.protocol import (
    Assignment,
    DecodeError,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafkapy.types import TopicPartition

quickly = settings(max_examples=40, deadline=None)

names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
partitions = st.sets(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=8).map(
    lambda found: tuple(sorted(found))
)
subscriptions = st.builds(
    Subscription,
    st.sets(names).map(lambda found: tuple(sorted(found))),
    st.none() | st.binary(max_size=20),
    partitions,
    st.integers(-1, 2**31 - 1),
    st.none() | names,
    st.none(),
)

OWNED = Subscription(("a", "b"), b"xy", (TopicPartition("a", 0), TopicPartition("a", 2)), 7, "r")
IN_VERSION = {
    0: b"\0\0" + b"\0\0\0\2\0\1a\0\1b" + b"\0\0\0\2xy",
    1: b"\0\1" + b"\0\0\0\2\0\1a\0\1b" + b"\0\0\0\2xy" + b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\2",
    2: b"\0\2" + b"\0\0\0\2\0\1a\0\1b" + b"\0\0\0\2xy" + b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\2" + b"\0\0\0\7",
    3: b"\0\3" + b"\0\0\0\2\0\1a\0\1b" + b"\0\0\0\2xy" + b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\2" + b"\0\0\0\7\0\1r",
}


@quickly
@given(subscriptions)
def test_a_subscription_comes_back(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription
    theirs = ConsumerProtocolSubscription.decode(encode_subscription(subscription))
    assert (sorted(theirs.topics), theirs.user_data) == (list(subscription.topics), subscription.user_data)
    assert (theirs.generation_id, theirs.rack_id) == (subscription.generation_id, subscription.rack_id)
    found = {TopicPartition(each.topic, number) for each in theirs.owned_partitions for number in each.partitions}
    assert found == set(subscription.owned_partitions)


@quickly
@given(partitions, st.none() | st.binary(max_size=20))
def test_an_assignment_comes_back(found: tuple[TopicPartition, ...], user_data: bytes | None) -> None:
    assignment = Assignment(found, user_data)
    encoded = encode_assignment(assignment)
    assert decode_assignment(encoded) == assignment
    theirs = ConsumerProtocolAssignment.decode(encoded)
    assert sorted((each.topic, each.partition) for each in theirs.partitions()) == sorted(found)


@pytest.mark.parametrize("version", IN_VERSION)
def test_members_of_every_age_are_understood(version: int) -> None:
    expected = OWNED
    if version < 3:
        expected = expected._replace(rack_id=None)
    if version < 2:
        expected = expected._replace(generation_id=-1)
    if version < 1:
        expected = expected._replace(owned_partitions=())
    assert decode_subscription(IN_VERSION[version]) == expected
    assert decode_subscription(IN_VERSION[version], "i1").group_instance_id == "i1"


def test_what_a_newer_version_adds_is_left_alone() -> None:
    assert encode_subscription(OWNED) == IN_VERSION[3]
    assert decode_subscription(b"\0\x09" + IN_VERSION[3][2:] + b"more") == OWNED
    assert decode_assignment(b"\0\x09\0\0\0\0\xff\xff\xff\xff more") == Assignment(())


def test_no_rack_is_no_rack() -> None:
    assert decode_subscription(IN_VERSION[3][:-3] + b"\0\0").rack_id is None


def test_cut_and_damaged_bytes_are_refused_or_read_as_something_else() -> None:
    dice = random.Random(1)
    assignment = encode_assignment(Assignment((TopicPartition("a", 1), TopicPartition("b", 2)), b"xy"))
    for encoded, decode in ((IN_VERSION[3], decode_subscription), (assignment, decode_assignment)):
        for size in range(len(encoded)):
            with pytest.raises(DecodeError):
                decode(encoded[:size])
        for _ in range(2000):
            damaged = bytearray(encoded)
            for _ in range(dice.randint(1, 3)):
                damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
            try:
                decode(bytes(damaged))
            except DecodeError:
                pass
