"""enable.auto.commit: when the positions of earlier polls are committed, and what comes of a commit that fails."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import run

from kafkapy.clients.consumer import auto_commit as module
from kafkapy.clients.consumer.auto_commit import AutoCommit
from kafkapy.errors import CommitFailedError, ErrorCode, error_for
from kafkapy.types import OffsetAndMetadata, TopicPartition

POSITIONS = {TopicPartition("t", 0): OffsetAndMetadata(5)}
PASSING, FINAL = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE), CommitFailedError("no longer a member")


class Bench:
    """Commits every 10 s, after a failure again in 2 s; a test sets the clock and answers the commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, enabled: bool = True) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.commits: list[tuple[Any, asyncio.Future[None]]] = []
        self.told: list[Any] = []
        self.auto = AutoCommit(enabled, 10_000, 2000, self._commit, lambda *told: self.told.append(told))

    async def _commit(self, positions: Any) -> None:
        answer = asyncio.get_running_loop().create_future()
        self.commits.append((positions, answer))
        await answer

    async def begin(self) -> asyncio.Future[None]:
        """A commit that is due; its answer."""
        assert self.auto.due
        self.auto.begin(POSITIONS)
        await asyncio.sleep(0)
        positions, answer = self.commits.pop()
        assert positions is POSITIONS
        return answer

    async def settle(self) -> None:
        """The callbacks of what was answered have run."""
        for _ in range(3):
            await asyncio.sleep(0)


def test_a_commit_is_due_after_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.now_s += 9.9
        assert not bench.auto.due
        bench.auto.begin(POSITIONS)
        await bench.settle()
        assert bench.commits == []
        bench.now_s += 0.1
        answer = await bench.begin()
        bench.now_s += 10
        assert not bench.auto.due  # one at a time
        answer.set_result(None)
        await bench.settle()
        assert bench.told == [(POSITIONS, None)]
        assert bench.auto.due

    run(main)


def test_nothing_consumed_is_no_commit_and_another_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.now_s += 10
        bench.auto.begin({})
        await bench.settle()
        assert bench.commits == bench.told == []
        assert not bench.auto.due
        bench.now_s += 10
        assert bench.auto.due
        await bench.auto.finish({})
        assert bench.commits == []

    run(main)


def test_what_is_not_enabled_is_never_due(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch, enabled=False)
        bench.now_s += 100
        assert not bench.auto.due
        bench.auto.begin(POSITIONS)
        await bench.auto.finish(POSITIONS)
        assert bench.commits == []

    run(main)


@pytest.mark.parametrize(("error", "again_s"), [(PASSING, 2), (FINAL, 10)])
def test_a_commit_that_fails_is_told_and_made_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, again_s: int
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.now_s += 10
        (await bench.begin()).set_exception(error)
        await bench.settle()
        assert bench.told == [(POSITIONS, error)]
        (said,) = caplog.records
        assert (said.levelno, said.name) == (logging.WARNING, "kafka.consumer")
        assert said.message == f"Automatic commit of 1 offsets failed: {error}"
        bench.now_s += again_s - 0.5
        assert not bench.auto.due
        bench.now_s += 0.5
        assert bench.auto.due

    run(main)


@pytest.mark.parametrize("error", [None, PASSING, FINAL])
def test_the_last_commit_follows_the_one_under_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    async def main() -> None:
        bench = Bench(monkeypatch)
        bench.now_s += 10
        first = await bench.begin()
        closing = asyncio.ensure_future(bench.auto.finish(POSITIONS))
        await bench.settle()
        assert bench.commits == []
        assert not bench.auto.enabled
        first.set_result(None)
        await bench.settle()
        ((positions, last),) = bench.commits
        assert positions is POSITIONS
        assert not closing.done()
        if error is None:
            last.set_result(None)
        else:
            last.set_exception(error)
        await closing  # an error is said, and the consumer closes
        said = [(each.levelno, each.message) for each in caplog.records]
        assert said == ([(logging.WARNING, f"Commit of 1 offsets at close failed: {error}")] if error else [])
        bench.now_s += 100
        assert not bench.auto.due

    run(main)
