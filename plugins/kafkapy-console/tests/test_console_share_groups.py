"""Share groups: start offsets and lag, reasons, resets with preview, deletion of start offsets."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from console_site import Person, reset_fields, serving
from kafkapy_console.security.passwords import hashed
from kafkapy_console.services.groups import Group, Lag, Member
from kafkapy_console.services.reasons import explained
from kafkapy_console.settings import Level, RoleRule, Settings
from waiting import wait_until

from kafkapy import KafkaShareConsumer, TopicPartition, testing
from kafkapy.admin import KafkaAdminClient, SharePartitionOffset
from kafkapy.clients.admin.share_groups import ShareGroupOffsetAdmin
from kafkapy.errors import KafkaError, KafkaTimeoutError, UnsupportedVersionError


def starts(admin: KafkaAdminClient, name: str) -> dict[int, SharePartitionOffset]:
    found = admin.list_share_group_offsets(name)[name]
    return {each.partition: at for each, at in found.items()}


def row(page: str, partition: str) -> list[str]:
    """The cells of a partition."""
    found = re.search(rf"<tr><td><a [^>]*>{partition}</a></td>(.*?)</tr>", page, re.DOTALL)
    assert found, partition
    return [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", found[1], re.DOTALL)]


# --- pages --------------------------------------------------------------------------------------------------------


def test_a_share_group_shows_start_offsets_and_lag(
    admin: KafkaAdminClient, person: Person, queue: Callable[..., tuple[str, KafkaShareConsumer]]
) -> None:
    name, worker = queue()
    path = f"/groups/{name}"
    wait_until(lambda: starts(admin, name)[0].lag == 5, "the coordinator has all acknowledgements")
    page = person.get(path)
    assert re.search(r"<dt>Lag</dt><dd>5</dd>", page)
    assert '<dd class="small">share</dd>' in page
    assert "Start offset" in page
    assert "Committed" not in page
    start, first, end, lag, done, _, readers = row(page, f"{name}-0")
    assert (start, first, end, lag, done) == ("4", "0", "10", "5", "1")
    assert readers == f"worker-of-{name}"
    assert f"{name}-0, {name}-1" in page
    listed = re.search(rf"{name}</a></td><td>share</td>.*?</tr>", person.get(f"/groups?q={name}"), re.DOTALL)
    assert listed
    assert ">5</td>" in listed[0]
    assert re.search(
        rf"{name}</a></td><td>share</td>.*?>1</td><td class=\"n\">5</td>", person.get(f"/topics/{name}/groups")
    )
    assert person.json(f"{path}/lag.json")["values"][-1] == 5
    assert f"{name},{name},0,4,0,10,5,worker-of-{name}" in person.get(f"{path}/lag.csv")
    worker.close()
    wait_until(lambda: "Nobody reads: the group has start offsets and no members." in person.get(path), "it left")


def test_a_share_group_with_members_is_not_changed(
    admin: KafkaAdminClient, person: Person, queue: Callable[..., tuple[str, KafkaShareConsumer]]
) -> None:
    name, _ = queue()
    before = starts(admin, name)
    path = f"/groups/{name}"
    page = person.get(f"{path}/reset?way=earliest")
    assert "changes start offsets of empty groups only" in page
    refused = person.send(f"{path}/reset", reset_fields(page), page=f"{path}/reset?way=earliest", status=400)
    assert "has 1 members. Stop them first" in refused.text
    deletion = f"{path}/delete-offsets"
    assert "refuses until they have left" in person.get(f"{deletion}?topic={name}")
    refused = person.send(deletion, {"topic": name}, page=f"{deletion}?topic={name}", status=400)
    assert "has 1 members. Stop them first" in refused.text
    assert starts(admin, name)[0] == before[0]


@pytest.mark.parametrize(
    ("query", "text", "then"),
    [
        ("way=earliest", "<strong>4 records are read again.</strong>", 0),
        ("way=latest", "<strong>6 records are skipped.</strong>", 10),
        ("way=time&at=1h", "<strong>4 records are read again.</strong>", 0),
    ],
    ids=["earliest", "latest", "time"],
)
def test_a_reset_of_start_offsets_does_what_its_preview_shows(
    admin: KafkaAdminClient, person: Person, queue: Callable[..., tuple[str, KafkaShareConsumer]],
    query: str, text: str, then: int,
) -> None:  # fmt: skip
    name, worker = queue()
    worker.close()
    wait_until(lambda: starts(admin, name)[0].lag == 5, "the coordinator has all acknowledgements")
    path = f"/groups/{name}/reset"
    wait_until(lambda: "1 member" not in person.get(path), "the worker has left")
    page = person.get(f"{path}?{query}&topic={name}&partition=0")
    assert text in page
    assert "Of the records after the start offsets, 1 are done already" in page
    fields = reset_fields(page)
    assert fields["target"] == [f"{name}:0:4:{then}"]
    unsure = {**fields, "confirmed": ""}
    assert "not confirmed" in person.send(path, unsure, page=f"{path}?{query}", status=400).text
    for target, text in ((f"{name}:0:4:11", "is outside of the log"), (f"{name}:9::0", "are not known")):
        wrong = {**fields, "target": target}
        assert text in person.send(path, wrong, page=f"{path}?{query}", status=400).text
    assert starts(admin, name)[0].start_offset == 4
    person.send(path, fields, page=f"{path}?{query}")
    assert f"Start offsets of 1 partitions of {name} are reset." in person.get(f"/groups/{name}")
    assert starts(admin, name)[0].start_offset == then
    moved = person.send(path, fields, page=f"{path}?{query}", status=400)
    assert "have changed since the preview" in moved.text


def test_a_share_group_is_not_reset_to_a_shift_or_another_group(
    person: Person, queue: Callable[..., tuple[str, KafkaShareConsumer]]
) -> None:
    name, _ = queue()
    for way in ("offset", "shift", "group"):
        page = person.get(f"/groups/{name}/reset?way={way}&at=1")
        assert "<h2>Preview</h2>" not in page
        assert f'<option value="{way}"' not in page


def test_start_offsets_of_a_topic_are_deleted(
    admin: KafkaAdminClient, person: Person, queue: Callable[..., tuple[str, KafkaShareConsumer]]
) -> None:
    name, worker = queue()
    worker.close()
    path = f"/groups/{name}/delete-offsets"
    preview = f"{path}?topic={name}"
    wait_until(lambda: "1 member" not in person.get(preview), "the worker has left")
    assert "It deletes 2 start offsets" in person.get(preview)
    person.send(path, {"topic": "another"}, page=preview, status=400)
    person.send(path, {"topic": name}, page=preview)
    assert admin.list_share_group_offsets(name)[name] == {}
    assert "The group has no offsets" in person.get(f"/groups/{name}")


def test_a_share_group_is_deleted_when_its_name_is_typed(
    person: Person, queue: Callable[..., tuple[str, KafkaShareConsumer]]
) -> None:
    name, worker = queue()
    worker.close()
    path = f"/groups/{name}/delete"
    wait_until(lambda: "1 member" not in person.get(path), "the worker has left")
    assert "It deletes 2 start offsets" in person.get(path)
    person.send(path, {"name": name}, page=path)
    assert person.http.get(f"/groups/{name}").status_code == 404


def test_roles_and_read_only_hold_for_start_offsets(
    broker: testing.Broker, admin: KafkaAdminClient, console: Callable[..., Person],
    queue: Callable[..., tuple[str, KafkaShareConsumer]], topic: Callable[..., str],
) -> None:  # fmt: skip
    name, worker = queue("team-a.")
    other, _ = queue("team-b.")
    worker.close()
    wait_until(lambda: starts(admin, name)[0].lag == 5, "the coordinator has all acknowledgements")
    before = starts(admin, name)
    visitor = console(
        login="users",
        users={"ann": hashed("secret"), "eve": hashed("secret")},
        roles=(
            RoleRule(Level.EDITOR, users=("ann",), prefixes=("team-a.",)),
            RoleRule(Level.VIEWER, users=("eve",), prefixes=("team-a.",)),
        ),
    )
    visitor.log_in("ann", "secret")
    visitor.get(f"/groups/{name}/reset?way=earliest")
    visitor.get(f"/groups/{other}", 403)
    visitor.get(f"/groups/{name}/reset?way=earliest&topic={other}", 403)
    foreign = {"target": f"{other}:0::0", "confirmed": "yes"}
    visitor.send(f"/groups/{name}/reset", foreign, page=f"/groups/{name}", status=403)
    for action, fields in (
        ("reset", {"target": f"{other}:0:4:0", "confirmed": "yes"}), ("delete-offsets", {"topic": other}),
    ):  # fmt: skip
        visitor.send(f"/groups/{other}/{action}", fields, page=f"/groups/{name}", status=403)
    visitor.http.cookies.clear()
    visitor.log_in("eve", "secret")
    page = visitor.get(f"/groups/{name}")
    assert "Reset start offsets" not in page
    assert "delete those of" not in page
    own = (("reset", {"target": f"{name}:0:4:0", "confirmed": "yes"}), ("delete-offsets", {"topic": name}))
    for action, fields in own:
        visitor.get(f"/groups/{name}/{action}?way=earliest&topic={name}", 403)
        visitor.send(f"/groups/{name}/{action}", fields, page=f"/groups/{name}", status=403)
    reader = console(read_only=True)
    assert "Reset start offsets" not in reader.get(f"/groups/{name}")
    for action, fields in own:
        refused = reader.send(f"/groups/{name}/{action}", fields, page=f"/groups/{name}/reset?way=earliest", status=403)
        assert "read-only" in refused.text
    assert starts(admin, name) == before


@pytest.mark.parametrize(
    ("error", "text", "status"),
    [
        (
            UnsupportedVersionError("no such API"),
            "The brokers do not tell offsets of share groups: Apache Kafka has this API (KIP-932) since version 4.1.",
            501,
        ),
        (KafkaTimeoutError("no answer in time"), "No answer in time.", 502),
    ],
    ids=["missing", "late"],
)
def test_why_the_offsets_of_a_share_group_are_not_known_is_told(
    broker: testing.Broker, admin: KafkaAdminClient, monkeypatch: pytest.MonkeyPatch,
    queue: Callable[..., tuple[str, KafkaShareConsumer]], error: KafkaError, text: str, status: int,
) -> None:  # fmt: skip
    name, _ = queue()

    async def missing(self: Any, group_specs: Any) -> Any:
        raise error

    monkeypatch.setattr(ShareGroupOffsetAdmin, "list_share_group_offsets", missing)
    with serving(Settings(kafka={"bootstrap.servers": broker.bootstrap_servers})) as url:
        visitor = Person(url)
        page = visitor.get(f"/groups/{name}")
        assert re.search(rf'<li class="warn">[^<]*{re.escape(text)}', page)
        assert f"worker-of-{name}" in page
        assert "<dt>Lag</dt><dd>–</dd>" in page
        assert text in visitor.get(f"/groups?q={name}")
        assert text in visitor.get(f"/groups/{name}/reset?way=earliest", status)
        assert text in visitor.get(f"/groups/{name}/delete-offsets?topic={name}", status)
        fields = {"target": f"{name}:0:4:0", "confirmed": "yes"}
        assert text in visitor.send(f"/groups/{name}/reset", fields, page=f"/groups/{name}/delete", status=status).text
        visitor.close()
    assert starts(admin, name)


# --- reasons ------------------------------------------------------------------------------------------------------

PARTITIONS = [TopicPartition("jobs", number) for number in range(4)]


def member(name: str, *assignment: TopicPartition) -> Member:
    return Member(f"{name}-id", None, name, "/127.0.0.1", None, 1, assignment, None, ("jobs",))


ann, bob = member("ann", *PARTITIONS), member("bob", *PARTITIONS)


def lag(
    number: int, start: int | None, end: int | None, told: int | None = None, *readers: Member, begin: int = 0
) -> Lag:
    return Lag(PARTITIONS[number], start, begin, end, "", readers, told)


@pytest.mark.parametrize(
    ("lags", "moved_at", "text"),
    [
        ([lag(0, 9, 9, 0, ann, bob)], {}, "[ok] The group is stable"),
        ([lag(0, None, 9, None, ann)], {}, "begins where the group's share.auto.offset.reset says"),
        ([lag(0, 5, 9, 4, ann), lag(1, 5, 9, 4)], {}, "1 partitions with a start offset have no reader"),
        ([lag(0, 5, 90, 80, ann, begin=40)], {}, "the start offsets lie before the beginning of the log"),
        ([lag(0, 90, 10, 0, ann)], {}, "Readers get nothing until the log has passed them."),
        ([lag(0, 5, 99, 90, ann)], {PARTITIONS[0]: 400.0}, "their start offsets stand still for 10 minutes"),
        (
            [lag(0, 0, 5000, 5000, bob, ann), *(lag(number, 9, 9, 0, ann) for number in (1, 2))],
            {},
            "read by ann, bob: those readers are slow",
        ),
    ],
    ids=["ok", "unset", "unread", "lost", "ahead", "still", "slow"],
)
def test_a_share_group_says_why(lags: list[Lag], moved_at: dict[TopicPartition, float], text: str) -> None:
    found = Group("g", "share", "Stable", 1, "simple", 1, 1, [ann, bob], lags)
    assert text in " ".join(f"[{each.level}] {each.text}" for each in explained(found, moved_at, 1000.0))


def test_the_lag_is_what_the_coordinator_tells() -> None:
    told = lag(0, 4, 10, 5)
    assert (told.lag, told.done) == (5, 1)
    # Before Kafka 4.2 coordinators tell no lag.
    untold = lag(0, 4, 10)
    assert (untold.lag, untold.done) == (6, 0)
