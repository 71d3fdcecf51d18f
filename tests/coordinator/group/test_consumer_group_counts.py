"""The counts and owners of a consumer group, which change with each member, against those of its members."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.coordinator.group.consumer.group import ConsumerGroup
from kafkapy.coordinator.group.consumer.member import ClassicMetadata, ConsumerGroupMember, MemberState

TOPICS = (UUID(int=1), UUID(int=2))
EPOCHS = st.integers(0, 2)
STATES = st.sampled_from(MemberState)
PARTITIONS = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 3), min_size=1), max_size=2)
CLASSIC = ClassicMetadata(1000, (("range", b""), ("roundrobin", b"")))


def members(member_id: str) -> st.SearchStrategy[ConsumerGroupMember]:
    return st.builds(
        ConsumerGroupMember,
        member_id=st.just(member_id),
        member_epoch=EPOCHS,
        previous_member_epoch=EPOCHS,
        state=STATES,
        instance_id=st.sampled_from([None, f"i-{member_id}"]),
        topic_names=st.frozensets(st.sampled_from("ab")),
        topic_regex=st.sampled_from(["", "a.*"]),
        server_assignor=st.sampled_from([None, "range"]),
        assigned=PARTITIONS,
        pending_revocation=PARTITIONS,
        classic=st.sampled_from([None, CLASSIC]),
    )


def alone(changes: list[ConsumerGroupMember | str]) -> list[ConsumerGroupMember | str]:
    """The changes without partitions that another member has: a coordinator gives none of them away."""
    present: dict[str, ConsumerGroupMember] = {}
    made: list[ConsumerGroupMember | str] = []
    for change in changes:
        if isinstance(change, str):
            present.pop(change, None)
            made.append(change)
            continue
        taken = {
            (topic, number)
            for each in present.values()
            if each.member_id != change.member_id
            for partitions in (each.assigned, each.pending_revocation)
            for topic, numbers in partitions.items()
            for number in numbers
        }
        assigned, pending = (
            {
                topic: left
                for topic, numbers in partitions.items()
                if (left := frozenset(number for number in numbers if (topic, number) not in taken))
            }
            for partitions in (change.assigned, change.pending_revocation)
        )
        change = change._replace(assigned=assigned, pending_revocation=pending)
        present[change.member_id] = change
        made.append(change)
    return made


def state(group: ConsumerGroup) -> dict[str, Any]:
    known = {name: value for name, value in vars(group).items() if isinstance(value, dict | int) and name != "members"}
    return known | {"members": dict(group.members)}


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(*[st.one_of(members(each), st.just(each)) for each in "abc"]), max_size=12))
def test_counts_and_owners_are_those_of_the_members(changes: list[ConsumerGroupMember | str]) -> None:
    group = ConsumerGroup("g")
    for change in alone(changes):
        if isinstance(change, str):
            group.remove(change)
        else:
            group.put(change)
    whole = ConsumerGroup("g")
    for member in group.members.values():
        whole.put(member)
    # A member that drops its instance id keeps its entry.
    whole.static_members = group.static_members
    assert state(group) == state(whole)


@given(members("a"), EPOCHS, EPOCHS, STATES, PARTITIONS, PARTITIONS)
def test_a_step_changes_the_progress_alone(
    member: ConsumerGroupMember,
    epoch: int,
    previous: int,
    to: MemberState,
    assigned: dict[UUID, frozenset[int]],
    revoked: dict[UUID, frozenset[int]],
) -> None:
    assert member.stepped(epoch, previous, to, assigned, revoked) == member._replace(
        member_epoch=epoch,
        previous_member_epoch=previous,
        state=to,
        assigned=assigned,
        pending_revocation=revoked,
    )
