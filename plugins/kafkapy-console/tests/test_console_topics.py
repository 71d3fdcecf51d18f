"""Topics and brokers: each change is previewed, checked by the broker, and done as it was previewed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from console_site import Person
from waiting import wait_until

from kafkapy import TopicPartition
from kafkapy.admin import ConfigResource, KafkaAdminClient


def test_a_topic_is_created_with_its_keys(person: Person, admin: KafkaAdminClient) -> None:
    fields = {
        "name": "created.by-console", "partitions": "3", "replicas": "1", "cleanup.policy": "compact",
        "configs": "segment.ms=60000\n\nmax.message.bytes = 2000",
    }  # fmt: skip
    response = person.send("/create-topic", fields, page="/create-topic")
    assert (
        response.headers["location"] == "/topics/created%2Eby-console"
        or "created.by-console" in response.headers["location"]
    )
    (found,) = admin.describe_topics(["created.by-console"])
    assert len(found["partitions"]) == 3
    configs = admin.describe_configs([ConfigResource("topic", "created.by-console")])["topic"]["created.by-console"]
    assert {name: each["value"] for name, each in configs.items()} == {
        "cleanup.policy": "compact", "segment.ms": "60000", "max.message.bytes": "2000",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "bad name"}, "is no name of a topic"),
        ({"name": ".."}, "is no name of a topic"),
        ({"name": ""}, "Name is needed"),
        ({"name": "x", "partitions": "0"}, "Partitions is 0"),
        ({"name": "x", "configs": "no equals"}, "is not key=value"),
        ({"name": "x", "partitions": "1", "replicas": "3"}, "eplication factor"),
        ({"name": "x", "configs": "no.such.key=1"}, "no.such.key"),
    ],
    ids=["name", "dots", "empty", "partitions", "line", "replicas", "key"],
)
def test_a_wrong_topic_is_refused_with_the_reason(person: Person, fields: dict[str, str], text: str) -> None:
    response = person.http.post("/create-topic", data={"_csrf": person.token("/create-topic"), **fields})
    assert response.status_code in (400, 409), response.text
    assert text in response.text
    assert 'class="banner bad"' in response.text


def test_partitions_are_added(person: Person, topic: Callable[..., str], admin: KafkaAdminClient) -> None:
    name = topic(2)
    assert "cannot be taken away again" in person.get(f"/topics/{name}/grow")
    person.send(f"/topics/{name}/grow", {"partitions": "5"}, page=f"/topics/{name}/grow")
    assert len(admin.describe_topics([name])[0]["partitions"]) == 5
    refused = person.send(f"/topics/{name}/grow", {"partitions": "4"}, page=f"/topics/{name}/grow", status=400)
    assert "must be from 6" in refused.text


def test_a_deletion_says_what_goes_and_needs_the_name(
    person: Person, topic: Callable[..., str], send: Callable[..., None], admin: KafkaAdminClient
) -> None:
    name = topic(2)
    send(name, [b"x"] * 1234)
    page = person.get(f"/topics/{name}/delete")
    assert "This cannot be undone" in page
    assert "1,234 offsets of records" in page
    refused = person.send(f"/topics/{name}/delete", {"name": "other"}, page=f"/topics/{name}/delete", status=400)
    assert f"Type the name of the topic to delete it: {name}" in refused.text
    assert name in admin.list_topics()
    again = {"name": name, "topic_id": "00000000-0000-0000-0000-000000000001"}
    assert (
        "created again meanwhile"
        in person.send(f"/topics/{name}/delete", again, page=f"/topics/{name}/delete", status=400).text
    )
    person.send(f"/topics/{name}/delete", {"name": name}, page=f"/topics/{name}/delete")
    assert name not in admin.list_topics()
    assert f"Topic {name} is deleted" in person.get("/topics")


def test_records_are_deleted_as_the_preview_shows(
    person: Person, topic: Callable[..., str], send: Callable[..., None], admin: KafkaAdminClient
) -> None:
    name = topic(2)
    send(name, [b"x"] * 100, 0)
    send(name, [b"x"] * 10, 1)
    path = f"/topics/{name}/delete-records"
    page = person.get(f"{path}?way=offset&at=40")
    assert "It deletes 50 offsets in 2 partitions" in page
    targets = re.findall(r'name="target" value="([^"]+)"', page)
    assert targets == ["0:0:40", "1:0:10"]
    [topic_id] = re.findall(r'name="topic_id" value="([^"]+)"', page)
    fields = {"topic_id": topic_id, "target": targets}
    refused = person.send(path, {**fields, "topic_id": "another"}, page=f"{path}?way=offset&at=40", status=400)
    assert "created again meanwhile" in refused.text
    refused = person.send(path, fields, page=f"{path}?way=offset&at=40", status=400)
    assert "not confirmed" in refused.text
    person.send(path, {**fields, "confirmed": "yes"}, page=f"{path}?way=offset&at=40")
    moved = person.send(path, {**fields, "confirmed": "yes"}, page=f"{path}?way=offset&at=40", status=400)
    assert "have changed since the preview" in moved.text
    begin = admin.list_partition_offsets({TopicPartition(name, 0): -2, TopicPartition(name, 1): -2})
    assert [begin[TopicPartition(name, each)].offset for each in (0, 1)] == [40, 10]
    assert "No record would be deleted" in person.get(f"{path}?way=offset&at=40")
    assert "It deletes 60 offsets in 1 partition;" in person.get(f"{path}?way=all&partition=0")
    assert "is no time" in person.get(f"{path}?way=time&at=never", 400)


def test_a_topic_is_copied_with_its_records(
    person: Person, topic: Callable[..., str], send: Callable[..., None]
) -> None:
    name = topic(3, cleanup_policy="compact")
    for partition in range(3):
        send(name, [b"%d" % each for each in range(200)], partition, key=b"k%d" % partition, headers=[("h", b"\xff")])
    target = f"{name}-copy"
    fields = {"name": target, "configs": "1", "records": "1"}
    response = person.send(f"/topics/{name}/copy", fields, page=f"/topics/{name}/copy")
    assert response.headers["location"] == "/jobs"
    wait_until(lambda: "600 records copied" in person.get("/jobs"), "600 records are copied")
    wait_until(lambda: "100 %" in person.get("/jobs"), "the copy is complete")
    first = person.get(f"/topics/{name}/download?format=jsonl&start=oldest").replace(name, target).splitlines()
    assert sorted(first) == sorted(person.get(f"/topics/{target}/download?format=jsonl&start=oldest").splitlines())
    assert "compact" in person.get(f"/topics/{target}")


def test_a_key_of_a_topic_is_set_and_reset(person: Person, topic: Callable[..., str], admin: KafkaAdminClient) -> None:
    name = topic()
    page = person.get(f"/topics/{name}/configs/retention.ms")
    assert "Where the value comes from" in page
    person.send(
        f"/topics/{name}/configs/retention.ms",
        {"operation": "set", "value": "12345"},
        page=f"/topics/{name}/configs/retention.ms",
    )

    def value() -> object:
        return (
            admin.describe_configs([ConfigResource("topic", name)])["topic"][name].get("retention.ms", {}).get("value")
        )

    assert value() == "12345"
    refused = person.send(
        f"/topics/{name}/configs/retention.ms",
        {"operation": "set", "value": "soon"},
        page=f"/topics/{name}/configs/retention.ms",
        status=400,
    )
    assert "refuses the change" in refused.text
    person.send(
        f"/topics/{name}/configs/retention.ms", {"operation": "reset"}, page=f"/topics/{name}/configs/retention.ms"
    )
    assert value() is None


def test_a_dynamic_key_of_a_broker_is_set_for_one_and_for_all(person: Person, admin: KafkaAdminClient) -> None:
    path = "/brokers/1/configs/log.retention.bytes"
    assert "all brokers" in person.get(path)
    person.send(path, {"operation": "set", "value": "111111111", "scope": "all"}, page=path)
    person.send(path, {"operation": "set", "value": "222222222", "scope": "one"}, page=path)
    page = person.get("/brokers/1?q=log.retention.bytes")
    assert "222222222" in page
    assert "dynamic, this broker" in page
    person.send(path, {"operation": "reset", "scope": "one"}, page=path)
    assert "111111111" in person.get("/brokers/1?q=log.retention.bytes")
    person.send(path, {"operation": "reset", "scope": "all"}, page=path)
    assert "takes no other value" in person.get("/brokers/1/configs/broker.id")


def test_a_search_of_keys_finds_names_and_documentation(person: Person, topic: Callable[..., str]) -> None:
    fragment = person.get(f"/topics/{topic()}/configs?q=retention.ms", **{"HX-Request": "true"})
    assert "<html" not in fragment
    assert "retention.ms" in fragment
    assert "segment.index.bytes" not in fragment


def test_statistics_of_a_topic(person: Person, topic: Callable[..., str], send: Callable[..., None]) -> None:
    name = topic(2)
    send(name, [b'{"n": 1}'] * 30 + [None] * 10, 0, key=b"k")
    page = person.get(f"/topics/{name}/statistics")
    assert "Of all 40 records" in page
    assert "25.0 %" in page
    large = topic(2)
    send(large, [b"x" * 10] * 3000, 0)
    page = person.get(f"/topics/{large}/statistics")
    assert "Of a random sample of" in page
    assert "2.0" in page
