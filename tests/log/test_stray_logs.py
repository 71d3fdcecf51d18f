"""A start sets logs aside that the metadata store does not know, and no others."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.log.log_manager import LogManager
from kafkapy.log.stray_logs import KnownTopic, StrayLogs, parse_stray_name, stray_name
from kafkapy.types import ZERO_UUID, TopicPartition, uuid_to_string

ID, OTHER_ID = uuid.UUID(int=77), uuid.UUID(int=78)


def open_manager(root: Path, strays: StrayLogs | None = None) -> LogManager:
    manager = LogManager(BrokerConfig({"log.dirs": str(root), "broker.id": "1"}))
    manager.strays = strays
    manager.acquire()
    manager.load()
    return manager


@pytest.mark.parametrize(
    ("topic", "id_of_log", "reason"),
    [
        (KnownTopic(ID, {0}), ID, None),
        (KnownTopic(ID, {1, 0}), ID, None),
        # One of the two is of a time without ids.
        (KnownTopic(ID, {0}), ZERO_UUID, None),
        (KnownTopic(None, {0}), ID, None),
        (KnownTopic(None, {0}), ZERO_UUID, None),
        (
            KnownTopic(ID, {0}),
            OTHER_ID,
            f"topic orders has the id {uuid_to_string(ID)}, and the log is of {uuid_to_string(OTHER_ID)}",
        ),
        (KnownTopic(ID, {1, 2}), ID, "topic orders has 2 partitions"),
        (KnownTopic(None, {1}), ID, "topic orders has 1 partitions"),
        (None, ID, "there is no topic orders"),
        (None, ZERO_UUID, "there is no topic orders"),
    ],
)
def test_a_log_is_stray_by_its_topic_its_id_or_its_number(
    tmp_path: Path,
    batch: Any,
    caplog: pytest.LogCaptureFixture,
    topic: KnownTopic | None,
    id_of_log: uuid.UUID,
    reason: str | None,
) -> None:
    orders, others = TopicPartition("orders", 0), TopicPartition("others", 0)
    manager = open_manager(tmp_path)
    for tp, topic_id in ((orders, id_of_log), (others, ID)):
        log = manager.get_or_create(tp, topic_id)
        log.become_leader(1, 0, [1])
        log.append_as_leader(batch(), api_version=9)
        manager.cleaner.manager.checkpoints.update(tmp_path, tp, 1)
    manager.shutdown()
    files = sorted(path.name for path in (tmp_path / "orders-0").iterdir())
    data = (tmp_path / "orders-0" / f"{0:020d}.log").read_bytes()

    known = {"others": KnownTopic(ID, {0})} | ({} if topic is None else {"orders": topic})
    strays = StrayLogs(known)
    manager = open_manager(tmp_path, strays)
    aside = list(tmp_path.glob("*-stray"))
    checkpoints = manager.cleaner.manager.checkpoints
    if reason is None:
        assert (set(manager.logs()), strays.set_aside, aside) == ({orders, others}, [], [])
        assert checkpoints.get(tmp_path, orders) == 1
        assert "Stray" not in caplog.text
    else:
        assert (set(manager.logs()), strays.set_aside) == ({others}, [orders])
        [directory] = aside
        assert parse_stray_name(directory.name) == orders
        assert sorted(path.name for path in directory.iterdir()) == files
        assert (directory / f"{0:020d}.log").read_bytes() == data
        # A later log of the name is dirty from its begin.
        assert checkpoints.get(tmp_path, orders) is None
        assert f"is set aside as {directory}: {reason} in the metadata store" in caplog.text
        assert "set 1 partitions aside" in caplog.text
    assert checkpoints.get(tmp_path, others) == 1
    manager.shutdown()


def test_the_name_of_a_log_that_is_set_aside_fits_into_a_directory() -> None:
    short, long = TopicPartition("a.b-c", 12), TopicPartition("t" * 249, 1000)
    assert parse_stray_name(stray_name(short)) == short
    assert stray_name(short) != stray_name(short)
    assert len(stray_name(long)) == 255
    assert parse_stray_name(stray_name(long)) is None  # it was cut
    for name in ("a.b-c-12", f"a.b-c-12.{'0' * 32}-delete", f"a.b-c-12.{'0' * 32}"):
        assert parse_stray_name(name) is None
