"""Topics in Chromium: created, configured, grown, copied, emptied and deleted by clicks."""

from __future__ import annotations

from collections.abc import Callable

from console_broker import all_of
from console_browser import Tab
from waiting import wait_until

from kafkapy import TopicPartition, testing
from kafkapy.admin import ConfigResource, KafkaAdminClient

Send = Callable[..., None]
MakeTopic = Callable[..., str]


def own_keys(admin: KafkaAdminClient, name: str) -> dict[str, str]:
    """The keys that a topic sets itself."""
    found = admin.describe_configs([ConfigResource("topic", name)])["topic"][name]
    return {key: each["value"] for key, each in found.items()}


def begins(admin: KafkaAdminClient, name: str, partitions: int) -> list[int]:
    """The first offset of each partition."""
    wanted = [TopicPartition(name, number) for number in range(partitions)]
    found = admin.list_partition_offsets(dict.fromkeys(wanted, -2))
    return [found[each].offset for each in wanted]


def test_a_topic_is_created_and_configured_by_clicks(tab: Tab, admin: KafkaAdminClient) -> None:
    tab.open("/topics")
    tab.click("Create a topic", "link")
    tab.page.wait_for_selector("input[name=name]:focus")
    tab.page.keyboard.type("made.by-clicks")
    tab.fill("Partitions", "3")
    tab.fill("Replicas", "1")
    tab.pick("cleanup.policy", "compact")
    tab.fill("Other keys", "segment.ms=60000\nno.such.key=1")
    tab.click("Create")
    tab.sees("no.such.key")
    tab.forgive()
    assert "made.by-clicks" not in admin.list_topics()
    # The form has what was typed.
    assert tab.field("Other keys").input_value() == "segment.ms=60000\nno.such.key=1"
    tab.fill("Other keys", "segment.ms=60000")
    tab.click("Create")
    tab.told("Topic made.by-clicks is created.")
    assert tab.text("h1") == "made.by-clicks"
    assert (tab.tile("Partitions"), tab.tile("Replicas"), tab.tile("cleanup.policy")) == ("3", "1", "compact")
    assert len(admin.describe_topics(["made.by-clicks"])[0]["partitions"]) == 3
    assert own_keys(admin, "made.by-clicks") == {"cleanup.policy": "compact", "segment.ms": "60000"}

    tab.click("Configuration", "link")
    tab.sees("What is it?", "#list")
    tab.page.get_by_role("searchbox").fill("retention.ms")
    tab.row("Configuration", "segment.index.bytes").wait_for(state="detached")
    tab.click("Edit retention.ms", "link")
    tab.fill("New value", "soon")
    tab.click("Set")
    tab.sees("The broker refuses the change")
    tab.forgive()
    assert tab.field("New value").input_value() == "soon"
    tab.fill("New value", "7200000")
    tab.click("Set")
    tab.told("retention.ms of topic made.by-clicks is set.")
    assert own_keys(admin, "made.by-clicks")["retention.ms"] == "7200000"
    tab.sees("(2 h)")
    tab.click("Edit retention.ms", "link")
    tab.click("Reset to the source below")
    tab.told("is reset.")
    assert "retention.ms" not in own_keys(admin, "made.by-clicks")


def test_a_topic_grows_and_is_copied_by_clicks(
    tab: Tab, broker: testing.Broker, topic: MakeTopic, send: Send, admin: KafkaAdminClient
) -> None:
    name = topic(2, cleanup_policy="compact")
    for partition in (0, 1):
        send(name, [b"%d" % each for each in range(100)], partition, key=b"k", headers=[("h", b"\xff")])
    tab.open(f"/topics/{name}")
    tab.choose("Add partitions")
    tab.sees("Partitions cannot be taken away again.")
    tab.fill("Partitions in all (now 2)", "5")
    tab.click("Add partitions")
    tab.told(f"Topic {name} has 5 partitions; it had 2.")
    assert tab.tile("Partitions") == "5"
    assert len(admin.describe_topics([name])[0]["partitions"]) == 5

    tab.choose("Copy")
    tab.fill("Name of the copy", f"{name}-twin")
    tab.page.get_by_label("its records, 200 offsets").check()
    tab.click("Create the copy")
    tab.told(f"records of {name} are copied to it.")
    # The page renews itself.
    job = tab.row("Jobs", f"Copy {name} to {name}-twin").filter(has_text="200 records copied").filter(has_text="done")
    job.wait_for()
    assert "100 %" in job.inner_text()
    for partition in range(5):
        assert all_of(broker, f"{name}-twin", partition) == all_of(broker, name, partition)
    assert own_keys(admin, f"{name}-twin") == {"cleanup.policy": "compact"}


def test_records_and_a_topic_are_deleted_by_clicks(
    tab: Tab, topic: MakeTopic, send: Send, admin: KafkaAdminClient
) -> None:
    name = topic(2)
    send(name, [b"x"] * 100, 0)
    send(name, [b"x"] * 10, 1)
    tab.open(f"/topics/{name}")
    tab.choose("Delete records")
    tab.pick("Records", "below an offset")
    tab.fill("Offset or time", "40")
    tab.pick("Partition", "1")
    tab.click("Preview")
    tab.sees("It deletes 10 offsets in 1 partition; nothing else changes.")
    chosen = [tab.field(label).input_value() for label in ("Records", "Offset or time", "Partition")]
    assert chosen == ["offset", "40", "1"]
    tab.pick("Partition", "all")
    tab.click("Preview")
    tab.sees("It deletes 50 offsets in 2 partitions; nothing else changes.")
    assert tab.table("Preview") == [["0", "0", "40", "100", "40"], ["1", "0", "10", "10", "10"]]
    tab.click("Delete 50 offsets")
    # Without the box the browser sends nothing.
    assert tab.page.locator("input[name=confirmed]:invalid").count() == 1
    assert begins(admin, name, 2) == [0, 0]
    tab.page.get_by_label("I want to delete these records").check()
    tab.click("Delete 50 offsets")
    tab.told(f"Records of {name} are deleted.")
    assert [cells[1:4] for cells in tab.table("Partitions")] == [["40", "100", "60"], ["10", "10", "0"]]
    assert begins(admin, name, 2) == [40, 10]

    tab.choose("Delete the topic")
    tab.sees("It deletes 2 partitions with 60 offsets of records")
    button = tab.page.get_by_role("button", name="Delete the topic")
    typed = tab.field(f"Type the name {name}")
    typed.fill(name[:-1])
    assert button.is_disabled()
    typed.fill(name)
    button.click()
    tab.told(f"Topic {name} is deleted.")
    assert name not in admin.list_topics()
    tab.page.get_by_role("searchbox").fill(name)
    tab.sees("No topic has")


def test_statistics_of_a_topic_are_a_click_away(tab: Tab, topic: MakeTopic, send: Send) -> None:
    name = topic(2)
    send(name, [b'{"n": 1}'] * 30 + [None] * 10, 0, key=b"k")
    tab.open(f"/topics/{name}")
    tab.click("Statistics", "link")
    tab.sees("Of all 40 records.")
    assert tab.tile("Largest partition") == "2.0 × the mean"
    assert tab.table("Sizes") == [["Key", "1", "1", "1", "1", "0.0 %"], ["Value", "8", "8", "8", "8", "25.0 %"]]
    send(name, [b"plain text"] * 10, 1)
    tab.click("Sample again", "link")
    tab.sees("Of all 50 records.")
    assert tab.tile("Largest partition") == "1.6 × the mean"


def test_a_page_of_topics_follows_the_cluster(tab: Tab, broker: testing.Broker, topic: MakeTopic, send: Send) -> None:
    name = topic(3)
    send(name, [b"x"] * 7, 2)

    def row() -> list[list[str]]:
        tab.open(f"/topics?q={name}")
        return [cells[:4] for cells in tab.table("Topics")]

    wait_until(lambda: row() == [[name, "3", "1", "7"]], "the row has the topic's offsets")
    broker.delete_topic(name)
    wait_until(lambda: row() == [[f"No topic has “{name}” in its name."]], "the row of the deleted topic is gone")
