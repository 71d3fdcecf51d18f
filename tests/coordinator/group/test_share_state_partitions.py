"""The share-partitions of a group: which have a state, which get one, which lose it."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.coordinator.group.share.state_partitions import StatePartitions, StateTopic
from kafkapy.testing.coordinator import snapshot_of

SNAPSHOT = snapshot_of({"a": 3, "b": 2})
A, B = (SNAPSHOT.topics[name].topic_id for name in "ab")
GONE = UUID(int=99)


def of(name: str, *numbers: int) -> StateTopic:
    return StateTopic(name, frozenset(numbers))


def test_missing_are_partitions_without_a_state_of_topics_that_exist() -> None:
    state = StatePartitions({A: of("a", 1)}, {A: of("a", 0), B: of("b", 0, 1)})
    assert state.missing(["a", "b", "c"], SNAPSHOT, {}) == {A: of("a", 1, 2)}
    assert state.missing(["a"], SNAPSHOT, {A: frozenset({1})}) == {A: of("a", 2)}, (
        "what is under way is not begun again"
    )
    assert state.missing(["b"], SNAPSHOT, {}) == {}
    assert StatePartitions().missing(["b"], SNAPSHOT, {B: frozenset({0, 1})}) == {}


def test_outcomes_count_for_what_is_still_initializing() -> None:
    begun = StatePartitions().with_initializing({A: of("a", 0, 1, 2), B: of("b", 0)})
    after = begun.with_outcomes({A: of("a", 0, 1)}, {A: of("a", 2)})
    assert after == StatePartitions({B: of("b", 0)}, {A: of("a", 0, 1)})
    deleted = begun.with_deleting({A: of("a", 0, 1, 2)})
    assert deleted.with_outcomes({A: of("a", 0, 1)}, {}).initialized == {}


def test_a_topic_that_begins_again_is_not_deleted_any_more() -> None:
    deleting = StatePartitions({}, {A: of("a", 0)}).with_deleting({A: of("a", 0)})
    assert deleting == StatePartitions({}, {}, {A: "a"})
    assert deleting.with_initializing({A: of("a", 1)}) == StatePartitions({A: of("a", 1)})


def test_all_partitions_of_a_topic_whose_deletion_did_not_end_may_have_a_state() -> None:
    state = StatePartitions({A: of("a", 0)}, {A: of("a", 1)}, {B: "b", GONE: "gone"})
    assert state.all_of(A, SNAPSHOT) == {0, 1}
    assert state.all_of(B, SNAPSHOT) == {0, 1}
    assert state.all_of(GONE, SNAPSHOT) == frozenset()
    assert state.topic_names == {A: "a", B: "b", GONE: "gone"}
    assert set(state.ids_named({"a", "gone"})) == {A, GONE}


partitions = st.frozensets(st.integers(0, 4), min_size=1)
topics = st.dictionaries(st.sampled_from([A, B]), partitions).map(
    lambda each: {topic_id: StateTopic("a" if topic_id == A else "b", numbers) for topic_id, numbers in each.items()}
)


def pairs(listed: dict[UUID, StateTopic]) -> set[tuple[UUID, int]]:
    return {(topic_id, number) for topic_id, topic in listed.items() for number in topic.partitions}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["begin", "good", "bad", "delete", "forget"]), topics), max_size=12))
def test_each_partition_is_in_the_state_that_its_last_change_says(
    changes: list[tuple[str, dict[UUID, StateTopic]]],
) -> None:
    state = StatePartitions()
    initializing: set[tuple[UUID, int]] = set()
    initialized: set[tuple[UUID, int]] = set()
    deleting: set[UUID] = set()
    for what, listed in changes:
        if what == "begin":
            state = state.with_initializing(listed)
            initializing |= pairs(listed)
            deleting -= listed.keys()
        elif what in ("good", "bad"):
            state = state.with_outcomes(*((listed, {}) if what == "good" else ({}, listed)))
            ended = initializing & pairs(listed)
            initializing -= ended
            initialized |= ended if what == "good" else set()
        else:
            state = state.with_deleting(listed) if what == "delete" else state.without(listed.keys())
            initializing = {each for each in initializing if each[0] not in listed}
            initialized = {each for each in initialized if each[0] not in listed}
            deleting = deleting | listed.keys() if what == "delete" else deleting - listed.keys()
        assert (pairs(dict(state.initializing)), pairs(dict(state.initialized))) == (initializing, initialized)
        assert state.deleting.keys() == deleting
        assert all(topic.partitions for topic in (*state.initializing.values(), *state.initialized.values()))
