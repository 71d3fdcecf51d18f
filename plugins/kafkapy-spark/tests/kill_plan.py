"""Where the processes of an exactly-once query die: at every request that they send, one after the other.

A plan is some rounds of faults that come one upon the other, kept in a directory that all processes of a query see. A
fault strikes in a phase: begin, commit and abort of the driver, or a task. What a phase does is numbered: requests of
whatever kind, as they are sent or when they are answered, and its end ("end"). A round with a fault that names no place
is repeated, with the fault one place later each time, until the phase comes to its end without it. Other places that
the query names ("records": all are taken) come beside the requests, sooner or later: only a fault that names them is
for them. Before each round a batch is committed with nothing in its way.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafkapy.clients.connections import Connections
from kafkapy.protocol.registry import ApiKeys

LOOKUPS = {"API_VERSIONS", "METADATA", "FIND_COORDINATOR"}
"""Not numbered: they change nothing, and whether they are sent depends on what a process has done before."""

STARVED = "Python worker failed to connect back"
"""Spark waits ten seconds for a process of its own, and not longer by any setting. See warm/sitecustomize.py."""

Reach = Callable[[str], None]
"""Says that a phase has come to a place."""


@dataclass(frozen=True)
class Fault:
    """victim: "worker" (the Python process), "query" (that, and nobody calls abort(): what the driver's JVM leaves when
    it dies, but that one needs no new JVM), "java" (the JVM above the process as well: the driver's, or an
    executor's), "error" (a RuntimeError). place: the first of this name; "" for each in turn. answered: requests are
    answered before."""

    where: str
    victim: str
    place: str = ""
    answered: bool = True


@dataclass
class _State:
    round: int = 0
    fault: int = 0
    """Of the round, that comes next."""
    number: int = 0
    """Of the place, where it is each in turn."""
    armed: bool = False
    """Whether a batch was committed since the round before."""


class KillPlan:
    """Used by one process at a time: the driver's, or the task of partition 0."""

    def __init__(self, directory: str | Path, rounds: Sequence[Sequence[Fault]] = ()) -> None:
        """rounds: for the first one that makes it."""
        self._state_path, self._log, self._rounds_path = (
            Path(directory, name) for name in ("state", "struck", "rounds")
        )
        if rounds:
            self._log.touch()
            self._rounds_path.write_text(json.dumps([[asdict(fault) for fault in each] for each in rounds]))
            self._keep(_State())
        self._rounds = [[Fault(**fault) for fault in each] for each in json.loads(self._rounds_path.read_text())]

    # --- what was done ----------------------------------------------------------------------------------------------

    @property
    def struck(self) -> list[dict[str, Any]]:
        """What has happened: {"round", "fault", "number", "where", "victim", "place"}."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    @property
    def done(self) -> bool:
        """Whether nothing is left that is to happen."""
        return self._state().round == len(self._rounds)

    @property
    def is_dead(self) -> bool:
        """Whether the driver counts as dead that has failed last, so that it does nothing about that."""
        struck = self.struck
        return bool(struck) and struck[-1]["victim"] == "query"

    # --- in the query's processes -----------------------------------------------------------------------------------

    @contextmanager
    def phase(self, where: str) -> Iterator[Reach]:
        """What is done in the block is subject to the next fault, if that is one of this phase."""
        state = self._state()
        fault = self._rounds[state.round][state.fault] if state.round < len(self._rounds) else None
        if fault is None or fault.where != where or not (state.armed or state.fault):
            yield lambda _place: None
        else:
            with _Numbered(fault, state.number, lambda place: self._strike(state, place)) as reach:
                yield reach
                reach("end")
            self._missed(state, fault)
        if where == "commit":
            self._committed()

    def _committed(self) -> None:
        state = self._state()
        if not state.fault:
            state.armed = True
            self._keep(state)

    def _missed(self, state: _State, fault: Fault) -> None:
        """The phase has come to its end: there are no more places."""
        assert not fault.place, f"{fault} has not happened"
        self._keep(_State(state.round + 1))

    def _strike(self, state: _State, place: str) -> None:
        faults = self._rounds[state.round]
        fault = faults[state.fault]
        about = {**asdict(state), "where": fault.where, "victim": fault.victim, "place": place}
        with self._log.open("a") as log:
            log.write(json.dumps(about) + "\n")
        if state.fault + 1 < len(faults):
            self._keep(_State(state.round, state.fault + 1, state.number))
        elif all(each.place for each in faults):
            self._keep(_State(state.round + 1))
        else:
            self._keep(_State(state.round, 0, state.number + 1))
        if fault.victim == "error":
            raise RuntimeError("a fault of the test's")
        if fault.victim == "java":
            os.kill(java_above(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _state(self) -> _State:
        return _State(**json.loads(self._state_path.read_text()))

    def _keep(self, state: _State) -> None:
        new = self._state_path.with_suffix(".new")
        new.write_text(json.dumps(asdict(state)))
        new.replace(self._state_path)


class _Numbered:
    """Counts what all clients of this process send, and says when it is the fault's turn."""

    def __init__(self, fault: Fault, number: int, strike: Callable[[str], None]) -> None:
        self._fault, self._strike = fault, strike
        self._left = 0 if fault.place else number
        self._lock = threading.Lock()

    def __enter__(self) -> Reach:
        submit = self._submit = Connections.submit

        def numbered(connections: Connections, connection: Any, api_key: int, *arguments: Any) -> asyncio.Future[Any]:
            name = ApiKeys(api_key).name
            its_turn = name not in LOOKUPS and self._is_its_turn(name)
            if its_turn and not self._fault.answered:
                self._strike(name)
            future = submit(connections, connection, api_key, *arguments)
            if not its_turn:
                return future

            async def answered() -> Any:
                response = await future
                self._strike(name)
                return response

            return asyncio.ensure_future(answered())

        Connections.submit = numbered  # type: ignore[method-assign,assignment]
        return self._reach

    def __exit__(self, *error: object) -> None:
        Connections.submit = self._submit  # type: ignore[method-assign]

    def _reach(self, place: str) -> None:
        if (place == "end" or place == self._fault.place) and self._is_its_turn(place):
            self._strike(place)

    def _is_its_turn(self, place: str) -> bool:
        with self._lock:
            if self._fault.place not in ("", place):
                return False
            self._left -= 1
            return self._left == -1


def java_above() -> int:
    """The process id of the JVM that this process works for."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid
