"""Groups: kinds and lag, reasons, resets with preview, members, deletion; transactions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from console_broker import committed, committed_or_none, read
from console_site import Person, reset_fields
from kafkapy_console.pages import group_actions
from kafkapy_console.services.groups import Group, Groups, Lag, Member
from kafkapy_console.services.history import GroupHistory
from kafkapy_console.services.reasons import explained
from waiting import wait_until

from kafkapy import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, testing
from kafkapy.admin import KafkaAdminClient
from kafkapy.errors import ProducerFencedError

PARTITIONS = [TopicPartition("orders", number) for number in range(4)]


def member(name: str, *assignment: TopicPartition, **more: object) -> Member:
    values = {"epoch": None, "target": None, "topics": ("orders",), **more}
    return Member(
        f"{name}-id", None, name, "/127.0.0.1", None, values["epoch"], assignment, values["target"], values["topics"]
    )  # type: ignore[arg-type]


def lag(
    number: int, committed: int | None, end: int | None, reader: Member | None = None, begin: int | None = 0
) -> Lag:
    return Lag(PARTITIONS[number], committed, begin, end, "", () if reader is None else (reader,))


def group(state: str, members: list[Member], lags: list[Lag], kind: str = "classic", epoch: int | None = None) -> Group:
    return Group("g", kind, state, 1, "range", epoch, epoch, members, lags)


def said(found: Group, moved_at: dict[TopicPartition, float] | None = None, now: float = 1000.0) -> str:
    return " ".join(f"[{each.level}] {each.text}" for each in explained(found, moved_at or {}, now))


ann, bob = member("ann", *PARTITIONS[:2]), member("bob", *PARTITIONS[2:])
READ = [lag(0, 9, 9, ann), lag(1, 9, 9, ann), lag(2, 9, 9, bob), lag(3, 9, 9, bob)]


def test_a_group_without_a_problem() -> None:
    assert said(group("Stable", [ann, bob], READ)).startswith("[ok] The group is stable")


def test_members_of_other_programs_are_not_idle() -> None:
    found = said(replace(group("Stable", [member("sr-1")], []), protocol_type="sr"))
    assert "their protocol is sr" in found
    assert "no partition" not in found


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (group("Empty", [], READ), "[warn] Nobody reads"),
        (group("PreparingRebalance", [ann, bob], READ), "waits until all 2 members have joined again"),
        (group("CompletingRebalance", [ann], READ), "waits for the assignment of the member that leads"),
        (group("Stable", [ann, bob, member("eve")], READ), "1 of 3 members have no partition"),
        (
            group("Stable", [ann], [*READ[:2], lag(2, 5, 9), lag(3, 5, 9)]),
            "2 partitions with a committed offset have no reader",
        ),
        (
            group("Stable", [ann, bob], [*READ[:3], lag(3, 5, 100, bob, begin=40)]),
            "[bad] 35 offsets in 1 partitions were deleted",
        ),
        (group("Stable", [ann, bob], [*READ[:3], lag(3, 50, 10, bob)]), "[bad] 1 committed offsets lie after the end"),
        (group("Stable", [ann, bob], [*READ[:3], lag(3, 5, None, bob)]), "their topic no longer exists"),
        (group("Stable", [ann, bob], [*READ[:3], lag(3, None, 9, bob)]), "have no committed offset yet"),
        (
            group("Stable", [ann, bob], [*READ[:3], lag(3, 0, 5000, bob)]),
            "5,000 of 5,000 records of the lag are in 1 of 4",
        ),
        (group("Dead", [], []), "[bad] The group is dead"),
        (
            group("Stable", [ann, member("bob", *PARTITIONS[2:], topics=("orders", "bills"))], READ),
            "2 different sets of topics",
        ),
        (
            group(
                "Reconciling",
                [
                    member("ann", *PARTITIONS[:3], epoch=5, target=PARTITIONS[:2]),
                    member("bob", PARTITIONS[3], epoch=4, target=PARTITIONS[2:]),
                ],
                READ,
                "consumer",
                5,
            ),
            "2 of 2 members change partitions: 1 to give up, 1 to take over",
        ),
    ],
    ids=[
        "empty",
        "preparing",
        "completing",
        "idle",
        "unread",
        "lost",
        "ahead",
        "gone",
        "unset",
        "slow",
        "dead",
        "topics",
        "moving",
    ],
)
def test_a_group_says_why(found: Group, text: str) -> None:
    assert text in said(found)


def test_a_reader_that_commits_no_more_is_stuck() -> None:
    lags = [lag(number, 5, 100 + number, ann if number < 2 else bob) for number in range(4)]
    assert "no new commit" not in said(group("Stable", [ann, bob], lags), dict.fromkeys(PARTITIONS, 990.0))
    assert "4 partitions have lag and a reader, but no new commit for 10 minutes" in said(
        group("Stable", [ann, bob], lags), dict.fromkeys(PARTITIONS, 400.0)
    )


def test_history_sees_members_states_and_offsets_that_went_back() -> None:
    history = GroupHistory()
    history.add(group("Stable", [ann], [lag(0, 50, 60, ann)]), 1.0)
    history.add(group("PreparingRebalance", [bob], [lag(0, 20, 80, bob)]), 20.0)
    texts = " ".join(event.text for event in history.events)
    assert "Member bob joined." in texts
    assert "Member ann left." in texts
    assert "State Stable became PreparingRebalance." in texts
    assert "Offset of orders-0 went back from 50 to 20." in texts
    assert list(history.points) == [(1.0, 10), (20.0, 60)]
    assert history.moved_at[PARTITIONS[0]] == 20.0


# --- on a broker --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_either_protocol_shows_its_members_and_lag(
    broker: testing.Broker, person: Person, topic: Callable[..., str], send: Callable[..., None], protocol: str
) -> None:
    name = topic(2)
    send(name, [b"x"] * 30, 0)
    send(name, [b"x"] * 10, 1)
    consumer = read(broker, f"g-{name}", name, 25, group_protocol=protocol, client_id=f"reader-of-{name}")
    with consumer:
        page = person.get(f"/groups/g-{name}")
        assert f"reader-of-{name}" in page
        assert re.search(r"<dt>Lag</dt><dd>15</dd>", page)
        assert f'<dd class="small">{protocol}</dd>' in page
        assert "Stable" in page
        assert "Dead" not in page
        row = re.search(rf"g-{name}</a></td><td>{protocol}</td>.*?</tr>", person.get(f"/groups?q=g-{name}"), re.DOTALL)
        assert row
        assert ">15</td>" in row[0]
        assert f"/groups/g-{name}" in person.get(f"/topics/{name}/groups")
        refused = person.send(
            f"/groups/g-{name}/reset", {"target": f"{name}:0:5:0", "confirmed": "yes"},
            page=f"/groups/g-{name}/reset?way=earliest", status=400,
        )  # fmt: skip
        assert "has 1 members. Stop them first" in refused.text
    assert person.json(f"/groups/g-{name}/lag.json")["values"][-1] == 15


@pytest.mark.parametrize(
    ("query", "again", "skipped", "then"),
    [
        ("way=earliest", 25, 0, {0: 0, 1: 0}),
        ("way=latest", 0, 15, {0: 30, 1: 10}),
        ("way=offset&at=7", 11, 0, {0: 7, 1: 7}),
        ("way=shift&at=-3", 6, 0, {}),
        ("way=time&at=1h", 25, 0, {0: 0, 1: 0}),
    ],
    ids=["earliest", "latest", "offset", "shift", "time"],
)
def test_a_reset_does_what_its_preview_shows(
    broker: testing.Broker, person: Person, topic: Callable[..., str], send: Callable[..., None],
    query: str, again: int, skipped: int, then: dict[int, int],
) -> None:  # fmt: skip
    name = topic(2)
    send(name, [b"x"] * 30, 0)
    send(name, [b"x"] * 10, 1)
    with KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{name}", enable_auto_commit=False
    ) as reader:
        reader.assign([TopicPartition(name, 0), TopicPartition(name, 1)])
        reader.commit(
            {
                TopicPartition(name, 0): OffsetAndMetadata(18, "", -1),
                TopicPartition(name, 1): OffsetAndMetadata(7, "", -1),
            }
        )
    path = f"/groups/g-{name}/reset"
    page = person.get(f"{path}?{query}")
    assert ("records are read again" in page) == (again > 0)
    if again:
        assert f"<strong>{again} records are read again.</strong>" in page
    if skipped:
        assert f"<strong>{skipped} records are skipped.</strong>" in page
    fields = reset_fields(page)
    assert len(fields["target"]) == 2
    unsure = {**fields, "confirmed": ""}
    assert "not confirmed" in person.send(path, unsure, page=f"{path}?{query}", status=400).text
    person.send(path, fields, page=f"{path}?{query}")
    assert committed(broker, f"g-{name}", name) == (then or {0: 15, 1: 4})
    moved = person.send(path, fields, page=f"{path}?{query}", status=400)
    assert "have changed since the preview" in moved.text


def settle(broker: testing.Broker, name: str, offsets: dict[int, int]) -> None:
    """Commits offsets of a topic in the group g-{name}, which has no members."""
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{name}") as reader:
        partitions = {TopicPartition(name, number): at for number, at in offsets.items()}
        reader.assign(list(partitions))
        reader.commit({each: OffsetAndMetadata(at, "", -1) for each, at in partitions.items()})


def test_a_reset_sets_nothing_that_no_preview_shows(
    broker: testing.Broker, person: Person, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    send(name, [b"x"] * 10)
    settle(broker, name, {0: 4})
    path = f"/groups/g-{name}/reset"
    preview = f"{path}?way=earliest"
    fields = reset_fields(person.get(preview))
    assert fields["kind"] == "classic"
    for offset in (11, 2**62):
        far = {**fields, "target": f"{name}:0:4:{offset}"}
        assert "is outside of the log" in person.send(path, far, page=preview, status=400).text
    missing = {**fields, "target": [*fields["target"], f"{name}:7::0"]}
    assert f"ends of the log of {name}-7 are not known" in person.send(path, missing, page=preview, status=400).text
    for kind in ("share", ""):
        other = {**fields, "kind": kind}
        assert "of another kind than in the preview" in person.send(path, other, page=preview, status=400).text
    assert committed(broker, f"g-{name}", name) == {0: 4}


def test_offsets_before_the_log_are_not_set(
    broker: testing.Broker, admin: KafkaAdminClient, person: Person, topic: Callable[..., str],
    send: Callable[..., None],
) -> None:  # fmt: skip
    name = topic()
    send(name, [b"x"] * 10)
    settle(broker, name, {0: 4})
    path = f"/groups/g-{name}/reset"
    preview = f"{path}?way=earliest"
    fields = reset_fields(person.get(preview))
    admin.delete_records({TopicPartition(name, 0): 6})
    assert "the log begins at 6 and ends at 10" in person.send(path, fields, page=preview, status=400).text
    assert committed(broker, f"g-{name}", name) == {0: 4}


def test_a_group_that_nobody_describes_is_not_changed(
    broker: testing.Broker, person: Person, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    settle(broker, name, {0: 0})
    described = Groups.described

    async def failing(self: Groups, *args: Any, **more: Any) -> list[Group]:
        return [replace(each, error="Not now.") for each in await described(self, *args, **more)]

    path = f"/groups/g-{name}"
    fields = reset_fields(person.get(f"{path}/reset?way=earliest"))
    monkeypatch.setattr(Groups, "described", failing)
    text = "The coordinator does not describe the group: Not now."
    assert text in person.get(f"{path}/reset?way=earliest", 502)
    assert text in person.send(f"{path}/reset", fields, page="/create-topic", status=502).text
    assert text in person.send(f"{path}/delete-offsets", {"topic": name}, page="/create-topic", status=502).text


def test_a_large_group_has_bounded_previews(
    broker: testing.Broker, person: Person, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(203)
    settle(broker, name, dict.fromkeys(range(203), 0))
    for page in (f"delete-offsets?topic={name}", "delete"):
        shown = person.get(f"/groups/g-{name}/{page}")
        assert shown.count(f"<tr><td>{name}-") == 200
        assert "and 3 more" in shown
    path = f"/groups/g-{name}/reset?way=earliest"
    assert len(reset_fields(person.get(path))["target"]) == 203
    monkeypatch.setattr(group_actions, "MOST_PARTITIONS", 202)
    assert "A reset of 203 partitions is too large: 202 are the most. Choose a topic." in person.get(path, 400)
    assert "Choose a partition." in person.get(f"{path}&topic={name}", 400)
    person.get(f"{path}&topic={name}&partition=0")


def test_a_group_is_deleted_when_its_name_is_typed(
    broker: testing.Broker, person: Person, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    send(name, [b"x"] * 5)
    read(broker, f"g-{name}", name, 5).close()
    path = f"/groups/g-{name}/delete"
    assert "It deletes 1 committed offset." in person.get(path)
    person.send(path, {"name": "other"}, page=path, status=400)
    person.send(path, {"name": f"g-{name}"}, page=path)
    assert person.http.get(f"/groups/g-{name}").status_code == 404


def test_offsets_of_a_topic_are_deleted(
    broker: testing.Broker, person: Person, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic()
    send(name, [b"x"] * 5)
    read(broker, f"g-{name}", name, 5).close()
    path = f"/groups/g-{name}/delete-offsets"
    assert "It deletes 1 committed offset." in person.get(f"{path}?topic={name}")
    person.send(path, {"topic": name}, page=f"{path}?topic={name}")
    wait_until(lambda: committed_or_none(broker, f"g-{name}", name) == {}, "the offsets are gone")


# --- transactions -------------------------------------------------------------------------------------------------


def test_an_open_transaction_is_shown_and_aborted(
    broker: testing.Broker, person: Person, topic: Callable[..., str]
) -> None:
    name = topic()
    transactional_id = f"txn/{name}"
    path = f"/transactions/txn%2F{name}"
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"open").get(timeout=30)
        assert transactional_id in person.get("/transactions?open=1")
        page = person.get(path)
        assert "Ongoing" in page
        assert f"{name}-0" in page
        assert "open since offset 0" in person.get(f"/topics/{name}/producers")
        person.send(f"{path}/abort", {"name": "other"}, page=path, status=400)
        person.send(f"{path}/abort", {"name": transactional_id}, page=path)
        wait_until(lambda: "Ongoing" not in person.get(path), "the transaction is aborted")
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
