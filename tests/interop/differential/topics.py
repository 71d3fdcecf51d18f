"""Exchanges about topics and the cluster.

ApiVersions, Metadata, CreateTopics, DeleteTopics, CreatePartitions, DescribeTopicPartitions, DescribeCluster,
FindCoordinator.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from interop.differential.exchanges import Peer, scenario

from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkapy.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.registry import ApiKeys

MetadataTopic = MetadataRequest.Topic
NewTopic = CreateTopicsRequest.Topic
Assigned = NewTopic.Assignment
NOWHERE = UUID(int=0xDEAD)
LONG = "x" * 250
BAD_NAMES = {
    "empty": "", "dot": ".", "two dots": "..", "250 characters": LONG, "249 characters": LONG[:-1], "space": "a b",
    "slash": "a/b", "umlaut": "ä", "three dots": "...", "null byte": "a\0b",
}  # fmt: skip


@scenario(ApiKeys.API_VERSIONS)
def api_versions(peer: Peer, version: int) -> None:
    names = {
        "usual": ("kafkapy", "1.0"),
        "empty name": ("", "1"),
        "empty version": ("a", ""),
        "dash": ("-a", "1"),
        "space": ("a b", "1"),
        "slash": ("a/b", "1"),
        "underscore": ("a_b", "1"),
        "inner": ("a.b-c", "1-2.3"),
    }
    for label, (software, release) in names.items():
        request = ApiVersionsRequest(client_software_name=software, client_software_version=release)
        peer.call(label, request, version)


@scenario(ApiKeys.METADATA)
def metadata(peer: Peer, version: int) -> None:
    topic_id = peer.create_topic(f"md-{version}", 3)

    def ask(label: str, topics: list[MetadataTopic] | None, auto: bool = False, **more: Any) -> None:
        if version < 4:
            auto = True
        peer.call(label, MetadataRequest(topics=topics, allow_auto_topic_creation=auto, **more), version)

    if version > 0:
        ask("empty list", [])
    ask("one", [MetadataTopic(name=f"md-{version}")])
    ask("twice", [MetadataTopic(name=f"md-{version}"), MetadataTopic(name=f"md-{version}")])
    for label, name in BAD_NAMES.items():
        if label != "249 characters":
            ask(f"name {label}", [MetadataTopic(name=name)])
            ask(f"auto-created name {label}", [MetadataTopic(name=name)], auto=True)
    if version >= 4:
        ask("missing", [MetadataTopic(name="md-missing")])
        ask("missing and there", [MetadataTopic(name="md-missing"), MetadataTopic(name=f"md-{version}")])
    ask("null name", [MetadataTopic(name=None)])
    ask("id", [MetadataTopic(name=None, topic_id=topic_id)])
    ask("id and its name", [MetadataTopic(name=f"md-{version}", topic_id=topic_id)])
    ask("id and another name", [MetadataTopic(name="other", topic_id=topic_id)])
    ask("unknown id", [MetadataTopic(name=None, topic_id=NOWHERE)])
    ask("unknown id and id", [MetadataTopic(name=None, topic_id=NOWHERE), MetadataTopic(name=None, topic_id=topic_id)])
    ask("id and name", [MetadataTopic(name=None, topic_id=topic_id), MetadataTopic(name=f"md-{version}")])
    ask("operations of topics", [MetadataTopic(name=f"md-{version}")], include_topic_authorized_operations=True)
    if version >= 8:
        ask(
            "operations of missing topics", [MetadataTopic(name="md-missing")], include_topic_authorized_operations=True
        )
        ask("operations of bad topics", [MetadataTopic(name=".")], include_topic_authorized_operations=True)
    ask(
        "operations of unknown ids",
        [MetadataTopic(name=None, topic_id=NOWHERE)],
        include_topic_authorized_operations=True,
    )
    ask("operations of cluster", [], include_cluster_authorized_operations=True)


@scenario(ApiKeys.CREATE_TOPICS)
def create_topics(peer: Peer, version: int) -> None:

    def topic(name: str, partitions: int = 1, replicas: int = 1, assignments: Any = (), configs: Any = ()) -> NewTopic:
        pairs = configs.items() if isinstance(configs, dict) else configs
        return NewTopic(
            name=name, num_partitions=partitions, replication_factor=replicas,
            assignments=[Assigned(partition_index=index, broker_ids=list(ids)) for index, ids in assignments],
            configs=[NewTopic.Config(name=key, value=value) for key, value in pairs],
        )  # fmt: skip

    def ask(label: str, *topics: NewTopic, validate_only: bool = False) -> None:
        peer.call(label, CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version)

    p = f"ct-{version}"
    ask("none")
    ask("one", topic(f"{p}-a"))
    ask("again", topic(f"{p}-a"))
    ask("validated only again", topic(f"{p}-a"), validate_only=True)
    ask("validated only", topic(f"{p}-v", 3, configs={"retention.ms": "5"}), validate_only=True)
    ask("after being validated", topic(f"{p}-v", 3, configs={"retention.ms": "5"}))
    for label, name in BAD_NAMES.items():
        if label != "249 characters":
            ask(f"name {label}", topic(name))
    ask("name 249 characters", topic(f"{p}-" + LONG[: 248 - len(p)]))
    ask("collision, first", topic(f"{p}.b"))
    ask("collision", topic(f"{p}_b"))
    ask("collision in one request", topic(f"{p}.c"), topic(f"{p}_c"))
    ask("twice in one request", topic(f"{p}-d"), topic(f"{p}-d"), topic(f"{p}-e"))
    ask("thrice in one request", topic(f"{p}-d3"), topic(f"{p}-d3"), topic(f"{p}-d3"))
    ask("metadata topic", topic("__cluster_metadata"))
    for number in (0, -1, -2, 20_000):
        if number != 20_000:
            ask(f"{number} partitions", topic(f"{p}-p{number}", number))
        ask(f"{number} replicas", topic(f"{p}-r{number}", 1, number))
    ask("2 replicas", topic(f"{p}-r2", 1, 2))
    ask("defaults with validation only", topic(f"{p}-dv", -1, -1), validate_only=True)
    one = [(0, [1])]
    ask("assigned", topic(f"{p}-m1", -1, -1, one))
    ask("assigned, two", topic(f"{p}-m2", -1, -1, [(0, [1]), (1, [1])]))
    ask("assigned, numbers given", topic(f"{p}-m3", 1, 1, one))
    ask("assigned, partitions given", topic(f"{p}-m4", 1, -1, one))
    ask("assigned, replicas given", topic(f"{p}-m5", -1, 1, one))
    ask("assigned, not from 0", topic(f"{p}-m6", -1, -1, [(1, [1])]))
    ask("assigned, hole", topic(f"{p}-m7", -1, -1, [(0, [1]), (2, [1])]))
    ask("assigned, negative partition", topic(f"{p}-m8", -1, -1, [(-1, [1])]))
    ask("assigned, partition twice", topic(f"{p}-m9", -1, -1, [(0, [1]), (0, [1])]))
    ask("assigned, no brokers", topic(f"{p}-m10", -1, -1, [(0, [])]))
    ask("assigned, broker twice", topic(f"{p}-m11", -1, -1, [(0, [1, 1])]))
    ask("assigned, unknown broker", topic(f"{p}-m12", -1, -1, [(0, [77])]))
    ask("assigned, negative broker", topic(f"{p}-m13", -1, -1, [(0, [-1])]))
    ask("assigned, unequal", topic(f"{p}-m14", -1, -1, [(0, [1]), (1, [1, 77])]))
    configs: dict[str, Any] = {
        "unknown": {"no.such.key": "1"},
        "not a number": {"retention.ms": "soon"},
        "too small": {"segment.bytes": "1"},
        "null": {"retention.ms": None},
        "empty name": {"": "1"},
        "bad enum": {"cleanup.policy": "shred"},
        "empty list": {"cleanup.policy": ""},
        "both": {"cleanup.policy": "compact,delete"},
        "spaces": {"cleanup.policy": "compact, delete"},
        "below": {"max.message.bytes": "-1"},
        "boolean": {"preallocate": "yes"},
        "empty": {"retention.ms": ""},
        "space around": {"retention.ms": " 7 "},
        "codec": {"compression.type": "brotli"},
        "codec case": {"compression.type": "GZIP"},
        "throttled": {"leader.replication.throttled.replicas": "x"},
        "throttled all": {"leader.replication.throttled.replicas": "*"},
        "lag": {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        "level": {"compression.gzip.level": "0"},
        "level -1": {"compression.gzip.level": "-1"},
        "zstd level": {"compression.zstd.level": "23"},
        "lz4 level": {"compression.lz4.level": "0"},
        "remote": {"remote.storage.enable": "true"},
        "ratio": {"min.cleanable.dirty.ratio": "1.1"},
        "isr": {"min.insync.replicas": "0"},
        "isr 2": {"min.insync.replicas": "2"},
        "timestamp": {"message.timestamp.type": "logappendtime"},
        "downconversion": {"message.downconversion.enable": "false"},
        "format": {"message.format.version": "3.0"},
        "local": {"local.retention.ms": "700000000"},
        "two bad": {"no.such.key": "1", "retention.ms": "x"},
        "large": {"segment.bytes": "2147483648"},
        "index": {"index.interval.bytes": "-1"},
        "jitter": {"segment.jitter.ms": "-5"},
        "segment.ms": {"segment.ms": "0"},
        "broker key": {"log.retention.ms": "5"},
        "retention -2": {"retention.ms": "-2"},
        "bytes": {"retention.bytes": "-2"},
        "dup timestamps": {"message.timestamp.difference.max.ms": "5"},
    }
    for number, (label, given) in enumerate(configs.items()):
        ask(f"config {label}", topic(f"{p}-cfg{number}", configs=given))
    ask("config given twice", topic(f"{p}-cfgt", configs=[("retention.ms", "5"), ("retention.ms", "6")]))
    ask(
        "mixed", topic(f"{p}-good"), topic("."), topic(f"{p}-bad", configs={"no.such.key": "1"}), topic(f"{p}-good2", 2)
    )


@scenario(ApiKeys.DELETE_TOPICS)
def delete_topics(peer: Peer, version: int) -> None:
    ids = {letter: peer.create_topic(f"dt-{version}-{letter}") for letter in "abcdefg"}
    name = f"dt-{version}-{{}}".format

    def ask(label: str, *topics: Any) -> None:
        if version >= 6:
            made = [DeleteTopicsRequest.Topic(name=each[0], topic_id=each[1]) for each in topics]
            peer.call(label, DeleteTopicsRequest(topics=made, timeout_ms=10_000), version)
        elif all(each[0] is not None and each[1] == UUID(int=0) for each in topics):
            request = DeleteTopicsRequest(topic_names=[each[0] for each in topics], timeout_ms=10_000)
            peer.call(label, request, version)

    zero = UUID(int=0)
    ask("none")
    ask("by name", (name("a"), zero))
    ask("again", (name("a"), zero))
    ask("missing", ("dt-missing", zero))
    for label, bad in BAD_NAMES.items():
        if label != "three dots":  # a good name, and auto-created by others
            ask(f"name {label}", (bad, zero))
    ask("by id", (None, ids["b"]))
    ask("by id again", (None, ids["b"]))
    ask("unknown id", (None, NOWHERE))
    ask("name and id", (name("c"), ids["c"]))
    ask("neither", (None, zero))
    ask("name twice", (name("d"), zero), (name("d"), zero))
    ask("id twice", (None, ids["e"]), (None, ids["e"]))
    ask("once by name, once by id", (name("f"), zero), (None, ids["f"]))
    ask("good and bad", (name("g"), zero), ("dt-missing", zero))
    ask("unknown id twice", (None, NOWHERE), (None, NOWHERE))
    ask("unknown name twice", ("dt-missing", zero), ("dt-missing", zero))


@scenario(ApiKeys.CREATE_PARTITIONS)
def create_partitions(peer: Peer, version: int) -> None:
    Topic = CreatePartitionsRequest.Topic
    name = f"cp-{version}"
    peer.create_topic(name, 2)
    peer.create_topic(f"{name}-b", 1)

    def ask(label: str, *topics: tuple[str, int, Any], validate_only: bool = False) -> None:
        made = [
            Topic(
                name=each[0],
                count=each[1],
                assignments=None if each[2] is None else [Topic.Assignment(broker_ids=ids) for ids in each[2]],
            )
            for each in topics
        ]
        request = CreatePartitionsRequest(topics=made, timeout_ms=10_000, validate_only=validate_only)
        peer.call(label, request, version)

    ask("none")
    for count in (-1, 0, 1, 2, 2**31 - 1):
        ask(f"{count} partitions", (name, count, None))
    ask("validated only", (name, 3, None), validate_only=True)
    ask("missing", ("cp-missing", 3, None))
    ask("bad name", (".", 3, None))
    ask("empty name", ("", 3, None))
    ask("empty assignment", (name, 3, []))
    ask("assignment of none", (name, 3, [[]]))
    ask("too many assignments", (name, 3, [[1], [1]]))
    ask("too few assignments", (name, 4, [[1]]))
    ask("unknown broker", (name, 3, [[77]]))
    ask("broker twice", (name, 3, [[1, 1]]))
    ask("other number of replicas", (name, 3, [[1, 2]]))
    ask("topic twice", (name, 3, None), (name, 4, None))
    ask("topic twice and another", (name, 3, None), (name, 4, None), (f"{name}-b", 2, None))
    ask("assigned", (name, 3, [[1]]))
    ask("one more", (name, 4, None))
    ask("good and bad", (name, 5, None), ("cp-missing", 5, None))


@scenario(ApiKeys.DESCRIBE_CLUSTER)
def describe_cluster(peer: Peer, version: int) -> None:
    peer.call("plain", DescribeClusterRequest(include_cluster_authorized_operations=False), version)
    peer.call("operations", DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    for kind in (0, 2, 3, -1):
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind)
        peer.call(f"endpoint type {kind}", request, version)
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    peer.call("fenced brokers", request, version)


@scenario(ApiKeys.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(peer: Peer, version: int) -> None:
    names = [f"dtp-{letter}" for letter in "abc"]
    for name in names:
        peer.create_topic(name, 3)
    Request = DescribeTopicPartitionsRequest

    def ask(label: str, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        start = None if cursor is None else Request.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        request = Request(
            topics=[Request.Topic(name=name) for name in topics], response_partition_limit=limit, cursor=start
        )
        peer.call(label, request, version)

    ask("one", "dtp-a")
    ask("three", *names)
    ask("twice", "dtp-a", "dtp-a")
    ask("missing", "dtp-missing")
    ask("missing between", "dtp-a", "dtp-ab", "dtp-b")
    for label, name in BAD_NAMES.items():
        ask(f"name {label}", name)
    for limit in (-1, 0, 1, 2, 3, 4, 6, 9, 10):
        ask(f"limit {limit}", *names, limit=limit)
    ask("cursor at the start", *names, cursor=("dtp-a", 0))
    ask("cursor in a topic", *names, cursor=("dtp-b", 1), limit=2)
    ask("cursor past a topic", *names, cursor=("dtp-b", 3))
    ask("cursor past everything", *names, cursor=("dtp-x", 0))
    ask("cursor at a missing topic", *names, cursor=("dtp-ab", 1))
    ask("cursor negative", *names, cursor=("dtp-a", -1))
    ask("cursor at an empty name", *names, cursor=("", 0))
    ask("missing beyond the limit", "dtp-a", "dtp-aa", limit=3)


@scenario(ApiKeys.FIND_COORDINATOR)
def find_coordinator(peer: Peer, version: int) -> None:
    # The first question makes the internal topics; what is compared comes when they are there.
    for kind in (0, 1):
        for _ in range(500):
            answer = peer.setup(FindCoordinatorRequest(key="wait", key_type=kind), 3)
            if answer.error_code == 0:
                break
            time.sleep(0.01)
    for kind in (0, 1, 2, 3, -1):
        for key in ("group", ""):
            peer.call(f"type {kind} key {key!r}", FindCoordinatorRequest(key=key, key_type=kind), version)
            peer.call(
                f"type {kind} keys {key!r}", FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), version
            )
        keys = ["a", "b", "a"]
        peer.call(f"type {kind} three keys", FindCoordinatorRequest(coordinator_keys=keys, key_type=kind), version)
        peer.call(f"type {kind} no keys", FindCoordinatorRequest(coordinator_keys=[], key_type=kind), version)
    share = f"g:{UUID(int=0xDEAD).hex}:0"
    peer.call("share key", FindCoordinatorRequest(coordinator_keys=[share], key_type=2), version)
