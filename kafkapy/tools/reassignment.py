"""Reassignments of replicas in a cluster: sizes, throttles, start, progress, end.

`kafkapy topics reassign` and `kafkapy cluster drain` use it; the plans come from `replica_plan`. It works with every
broker that serves AlterPartitionReassignments (Kafka 2.4 and newer).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.tools.output import INTERRUPTED, Column, Output, progress, size_text, tell
from kafkapy.tools.replica_plan import Move, Racks
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = [
    "PLAN_COLUMNS",
    "bytes_to_move",
    "cancel",
    "execute",
    "log_sizes",
    "plan_document",
    "plan_rows",
    "racks_of",
    "running",
    "running_rows",
    "summary",
    "unthrottle",
    "wait",
]

LOOK_AGAIN_S: Final = 0.3
SETTLED_S: Final = 30.0
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
REPLICAS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

Row = dict[str, Any]
Sizes = dict[int, dict[TopicPartition, int]]
"""Bytes of each log by broker."""

PLAN_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("replicas"),
    Column("wanted"),
    Column("adding"),
    Column("bytes", "to copy", right=True),
)


# --- the cluster now ----------------------------------------------------------------------------------------------


def racks_of(admin: KafkaAdminClient, wanted: Iterable[int] | None = None) -> Racks:
    """{broker: rack} of all live brokers, or of the wanted ones.

    KafkaError for an unknown or dead broker.
    """
    found = admin.describe_cluster()["brokers"]
    live = {int(each["broker_id"]): each["rack"] for each in found if not each.get("is_fenced")}
    if wanted is None:
        return live
    missing = sorted(set(wanted) - live.keys())
    if missing:
        raise KafkaError(f"The cluster has no live broker {_listed(missing)}; it has {_listed(sorted(live))}.")
    return {broker: live[broker] for broker in sorted(set(wanted))}


def log_sizes(admin: KafkaAdminClient, partitions: Collection[TopicPartition]) -> Sizes:
    """The size in bytes of each partition's log on each live broker."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    sizes: Sizes = {}
    if topics:
        for broker in admin.describe_log_dirs(topics):
            sizes[broker["broker"]] = {
                TopicPartition(topic["name"], each["partition_index"]): each["partition_size"]
                for log_dir in broker["log_dirs"]
                for topic in log_dir["topics"]
                for each in topic["partitions"]
                if not each["is_future_key"]
            }
    return sizes


def largest(sizes: Sizes, brokers: Iterable[int], partition: TopicPartition) -> int | None:
    """The size of the largest log of a partition on these brokers, or None."""
    return max((sizes[broker][partition] for broker in brokers if partition in sizes.get(broker, {})), default=None)


def running(admin: KafkaAdminClient, partitions: Collection[TopicPartition] | None = None) -> list[Move]:
    """The running reassignments of these partitions, or all, as moves with sizes."""
    found = admin.list_partition_reassignments(None if partitions is None else list(partitions))
    sizes = log_sizes(admin, found)
    moves = []
    for partition, state in sorted(found.items()):
        adding, removing = set(state["adding_replicas"]), set(state["removing_replicas"])
        before = tuple(broker for broker in state["replicas"] if broker not in adding)
        wanted = tuple(broker for broker in state["replicas"] if broker not in removing)
        moves.append(Move(partition, before, wanted, largest(sizes, before, partition)))
    return moves


# --- rows and sentences -------------------------------------------------------------------------------------------


def plan_rows(moves: Iterable[Move]) -> list[Row]:
    """The rows of PLAN_COLUMNS."""
    return [
        {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "replicas": move.current,
            "wanted": move.wanted,
            "adding": move.adding,
            "bytes": move.bytes,
        }
        for move in moves
    ]


def plan_document(moves: Iterable[Move]) -> Row:
    """The plan in the file form of kafka-reassign-partitions.sh."""
    return {
        "version": 1,
        "partitions": [
            {"topic": move.partition.topic, "partition": move.partition.partition, "replicas": list(move.wanted)}
            for move in moves
        ],
    }


def bytes_to_move(moves: Iterable[Move]) -> int:
    """The bytes to copy, as far as they are known."""
    return sum(move.bytes or 0 for move in moves)


def summary(moves: Sequence[Move]) -> str:
    """A sentence about the partitions and bytes of a plan."""
    copied = sum(len(move.adding) for move in moves)
    unknown = sum(move.bytes is None for move in moves)
    partitions = "1 partition" if len(moves) == 1 else f"{len(moves):,} partitions"
    if not copied:
        return f"{partitions} change, without data to copy."
    replicas = "1 replica" if copied == 1 else f"{copied:,} replicas"
    size = f"{size_text(bytes_to_move(moves))}" + (f" and {unknown} of unknown size" if unknown else "")
    return f"{partitions} change, {replicas} with {size} to copy."


def running_rows(admin: KafkaAdminClient, moves: Sequence[Move]) -> list[Row]:
    """The rows of running reassignments with their progress."""
    sizes = log_sizes(admin, [move.partition for move in moves])
    rows = []
    for move, row in zip(moves, plan_rows(moves), strict=True):
        copied = _copied(move, sizes)
        row["copied"] = copied
        row["removing"] = move.removing
        row["percent"] = 100 if not move.bytes else min(100, copied * 100 // move.bytes)
        rows.append(row)
    return rows


# --- start, wait, end ---------------------------------------------------------------------------------------------


def execute(admin: KafkaAdminClient, moves: Sequence[Move], throttle: int | None = None) -> None:
    """Start the reassignments, with a throttle in bytes per second.

    KafkaError names the refused partitions. Throttles come first, so that no byte is copied at full speed.
    """
    if throttle is not None:
        _throttle(admin, moves, throttle)
    refused = {
        partition: error
        for partition, error in admin.alter_partition_reassignments(
            {move.partition: move.wanted for move in moves}
        ).items()
        if error is not None
    }
    if refused:
        if throttle is not None and len(refused) == len(moves):
            unthrottle(admin, _topics(moves))
        said = "; ".join(f"{partition}: {str(error()).rstrip('.')}" for partition, error in sorted(refused.items()))
        raise KafkaError(f"{len(refused)} of {len(moves)} reassignments are refused: {said}")


def wait(admin: KafkaAdminClient, moves: Sequence[Move], output: Output, again: str) -> None:
    """Show the progress until the reassignments end.

    SystemExit(130) after Ctrl-C, with `again` as the next command. KafkaError when a partition ends with other replicas
    than planned.
    """
    total = bytes_to_move(moves)
    by_partition = {move.partition: move for move in moves}
    try:
        with progress("reassigning", total, shown=not output.as_json, sizes=True) as bar:
            while True:
                found = admin.list_partition_reassignments(list(by_partition))
                sizes = log_sizes(admin, by_partition) if found else {}
                copied = sum(_copied(move, sizes) if move.partition in found else move.bytes or 0 for move in moves)
                bar.advance(max(0, min(copied, total) - bar.done))
                if not found:
                    break
                time.sleep(LOOK_AGAIN_S)
    except KeyboardInterrupt:
        tell(f"Interrupted: the reassignment continues. {again}")
        raise SystemExit(INTERRUPTED) from None
    # Brokers hear from the controller a moment later.
    end = time.monotonic() + SETTLED_S
    while (different := _different(admin, moves)) and time.monotonic() < end:
        time.sleep(LOOK_AGAIN_S)
    if different:
        said = "; ".join(f"{partition} has {_listed(replicas)}" for partition, replicas in different.items())
        raise KafkaError(f"The reassignment ended otherwise than planned: {said}.")


def unthrottle(admin: KafkaAdminClient, topics: Iterable[str]) -> None:
    """Remove the throttles of topics, and the rates of all brokers.

    The rates stay while reassignments run.
    """
    _reset(admin, "topic", sorted(set(topics)), REPLICAS)
    if not admin.list_partition_reassignments():
        brokers = sorted(int(each["broker_id"]) for each in admin.describe_cluster()["brokers"])
        _reset(admin, "broker", [str(broker) for broker in brokers], RATES)


def cancel(admin: KafkaAdminClient, moves: Sequence[Move]) -> None:
    """Cancel running reassignments and remove their throttles. KafkaError."""
    answers = admin.alter_partition_reassignments(dict.fromkeys(move.partition for move in moves))
    refused = {
        partition: error
        for partition, error in answers.items()
        if error is not None and error.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    }
    if refused:
        said = "; ".join(f"{partition}: {str(error()).rstrip('.')}" for partition, error in sorted(refused.items()))
        raise KafkaError(f"{len(refused)} of {len(moves)} reassignments cannot be cancelled: {said}")
    unthrottle(admin, _topics(moves))


def _topics(moves: Iterable[Move]) -> set[str]:
    return {move.partition.topic for move in moves}


def _copied(move: Move, sizes: Sizes) -> int:
    """Bytes of the new replicas so far."""
    each = move.size or 0
    return sum(min(each, sizes.get(broker, {}).get(move.partition, 0)) for broker in move.adding)


def _different(admin: KafkaAdminClient, moves: Iterable[Move]) -> dict[TopicPartition, list[int]]:
    """The partitions whose replicas are not those of the plan."""
    wanted = {move.partition: set(move.wanted) for move in moves}
    topics = admin.describe_topics(sorted({partition.topic for partition in wanted}))
    found = {
        TopicPartition(topic["name"], each["partition_index"]): each["replica_nodes"]
        for topic in topics
        for each in topic["partitions"]
    }
    return {
        partition: found[partition]
        for partition in sorted(wanted)
        if partition in found and set(found[partition]) != wanted[partition]
    }


def _throttle(admin: KafkaAdminClient, moves: Iterable[Move], rate: int) -> None:
    """Set the rates of brokers, and the throttled replicas of topics: KIP-73."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    brokers: set[int] = set()
    for move in moves:
        topic, number = move.partition.topic, move.partition.partition
        leaders.setdefault(topic, set()).update(f"{number}:{broker}" for broker in move.current)
        followers.setdefault(topic, set()).update(f"{number}:{broker}" for broker in move.adding)
        brokers |= {*move.current, *move.wanted}
    live = {int(each["broker_id"]) for each in admin.describe_cluster()["brokers"]}
    rates = dict.fromkeys(RATES, str(rate))
    _set(admin, "broker", {str(broker): rates for broker in sorted(brokers & live)})
    given = _given(admin, "topic", leaders)
    replicas = {}
    for topic in leaders:
        before = {key: {each for each in given[topic].get(key, "").split(",") if each} for key in REPLICAS}
        replicas[topic] = {
            LEADER_REPLICAS: ",".join(sorted(before[LEADER_REPLICAS] | leaders[topic])),
            FOLLOWER_REPLICAS: ",".join(sorted(before[FOLLOWER_REPLICAS] | followers[topic])),
        }
    _set(
        admin,
        "topic",
        {topic: {key: value for key, value in each.items() if value} for topic, each in replicas.items()},
    )


def _given(admin: KafkaAdminClient, kind: str, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The keys that are set on resources of one type."""
    from kafkapy.clients.admin.configs import ConfigResource

    found = admin.describe_configs([ConfigResource(kind, name) for name in names]).get(kind, {})
    return {name: {key: config["value"] for key, config in keys.items()} for name, keys in found.items()}


def _set(admin: KafkaAdminClient, kind: str, values: Mapping[str, Mapping[str, str]]) -> None:
    from kafkapy.clients.admin.configs import ConfigResource

    resources = [ConfigResource(kind, name, keys) for name, keys in values.items() if keys]
    if resources:
        _raise_first(admin.alter_configs(resources, raise_on_unknown=False))


def _reset(admin: KafkaAdminClient, kind: str, names: Sequence[str], keys: Sequence[str]) -> None:
    """Reset those of the keys that are set."""
    from kafkapy.clients.admin.configs import ConfigResource

    given = _given(admin, kind, names) if names else {}
    wanted = {name: [key for key in keys if key in given[name]] for name in names}
    resources = [ConfigResource(kind, name, present) for name, present in wanted.items() if present]
    if resources:
        _raise_first(admin.reset_configs(resources, raise_on_unknown=False))


def _raise_first(results: Mapping[str, Mapping[str, str]]) -> None:
    for kind, answers in results.items():
        for name, text in answers.items():
            if text != "OK":
                raise KafkaError(f"{kind.capitalize()} {name}: {text}")


def _listed(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"
