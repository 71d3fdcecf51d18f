"""Workers and the broker of a queue are killed with SIGKILL under load: each record is done once, and none is lost."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from system.queue_load import KEYS, PAUSE_S, Queue

from kafkapy.testing.broker_process import BrokerProcess

ROUNDS = 25
SEEDS = 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path / "broker", KEYS)
    made.start()
    yield made
    made.remove()


def under_load(broker: BrokerProcess, seed: int, seconds: float, workers: int, pause_s: float) -> Counter[str]:
    """Kills for so many seconds, about one in `pause_s`; then everything must come to its end."""
    source = random.Random(seed)
    with closing(
        Queue(broker.bootstrap, broker.data_dir, "load", partitions=3, limit=source.choice([4, 6, 10]), source=source)
    ) as queue:
        for _ in range(workers):
            queue.workers.start(source.randrange(1 << 30))
        broker_kills = 0
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + source.random() * 2 * pause_s
        while time.monotonic() < end:
            queue.go_on()
            time.sleep(PAUSE_S)
            if time.monotonic() > next_kill:
                if source.random() < 0.2:
                    restart(broker)
                    broker_kills += 1
                else:
                    queue.kill_worker()
                next_kill = time.monotonic() + source.random() * 2 * pause_s
        queue.finish()
        return queue.check() + Counter({"broker kills": broker_kills})


def restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def one_round(broker: BrokerProcess, number: int, source: random.Random) -> Counter[str]:
    """A short life of a queue with a death of the broker and some of workers in it."""
    partitions, limit = source.choice([1, 2]), source.choice([4, 10])
    with closing(Queue(broker.bootstrap, broker.data_dir, f"round-{number}", partitions, limit, source)) as queue:
        for _ in range(3):
            queue.workers.start(source.randrange(1 << 30))
        kills = [queue.kill_worker, queue.kill_worker, lambda: restart(broker)]
        source.shuffle(kills)
        for kill in kills:
            queue.produce(source.randrange(20, 200))
            seen, until = queue.workers.look(), time.monotonic() + 5
            # Mostly in the midst of work; but the first workers may be slow to come.
            while queue.workers.look() == seen and time.monotonic() < until:
                time.sleep(PAUSE_S)
            time.sleep(source.random() ** 2 * 0.2)
            kill()
        queue.finish()
        return queue.check() + Counter({"rounds": 1})


@pytest.mark.timeout(1200)
def test_kills_under_load(broker: BrokerProcess) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    counted = under_load(broker, seed, seconds=8, workers=4, pause_s=0.7)
    print(dict(counted))
    assert counted["A"] > 0
    assert counted["worker kills"] + counted["broker kills"] > 0


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.alone
@pytest.mark.parametrize("seed", range(3))
def test_kills_under_load_for_a_minute(broker: BrokerProcess, seed: int) -> None:
    counted = under_load(broker, seed, seconds=60, workers=8, pause_s=0.5)
    print(dict(counted))
    assert counted["A"] > 0


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_rounds_of_kills(broker: BrokerProcess, seed: int) -> None:
    total: Counter[str] = Counter()
    for number in range(ROUNDS):
        source = random.Random(f"{seed} {number}")
        total += one_round(broker, number, source)
    print(dict(total))
    assert total["A"] > 0
