"""Work that goes on after the request that started it: copies of topics."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kafkapy_console.errors import NotFoundError, TooBusyError, sentence

__all__ = ["Job", "Jobs"]

MOST_RUNNING = 4
KEPT = 100


@dataclass
class Job:
    """One piece of work and how far it is."""

    id: int
    title: str
    user: str
    topics: tuple[str, ...]
    began: float = field(default_factory=time.time)
    done: int = 0
    total: int = 0
    state: str = "running"
    """running, done, stopped, failed."""
    text: str = ""
    ended: float | None = None
    task: asyncio.Task[None] | None = None

    @property
    def percent(self) -> int:
        """The progress; 100 at the end."""
        if self.state == "done":
            return 100
        return min(99, self.done * 100 // self.total) if self.total else 0


class Jobs:
    """The jobs of a console, newest first."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._ids = itertools.count(1)

    @property
    def newest(self) -> list[Job]:
        """All kept jobs."""
        return list(reversed(self._jobs.values()))

    def find(self, job_id: int) -> Job:
        """A job. NotFoundError."""
        if job_id not in self._jobs:
            raise NotFoundError(f"There is no job {job_id}.")
        return self._jobs[job_id]

    def begin(self, title: str, user: str, topics: tuple[str, ...], work: Callable[[Job], Awaitable[None]]) -> Job:
        """Starts a job with these topics. TooBusyError."""
        if sum(job.state == "running" for job in self._jobs.values()) >= MOST_RUNNING:
            raise TooBusyError(f"{MOST_RUNNING} jobs run already. Wait for one, or stop one.")
        job = Job(next(self._ids), title, user, topics)
        self._jobs[job.id] = job
        while len(self._jobs) > KEPT:
            self._jobs.pop(next(iter(self._jobs)))
        job.task = asyncio.ensure_future(self._run(job, work))
        return job

    async def _run(self, job: Job, work: Callable[[Job], Awaitable[None]]) -> None:
        try:
            await work(job)
            job.state = "done"
        except asyncio.CancelledError:
            job.state = "stopped"
        except Exception as error:
            job.state, job.text = "failed", sentence(error)
        finally:
            job.ended = time.time()

    def stop(self, job: Job) -> None:
        """Ends a running job."""
        if job.task is not None:
            job.task.cancel()

    async def close(self) -> None:
        """Ends all jobs."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
