"""Deliberate weakenings of the protocol, each of which the random schedules must notice.

    PYTHONHASHSEED=0 python tests/simulation/mutants.py NAME [FIRST]

runs schedules with one of them until a rule is broken, and prints the seed. A mutant is a change of one line of the
production code, made in memory; one in a kernel is made in the requests that the kernel gets.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import struct
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent.parent)]

from simulation import schedules
from simulation.broker import FETCH, PRODUCE, SimulatedBroker
from simulation.cluster import BASE

from kafkapy.broker.descriptors import raise_limit
from kafkapy.protocol.messages.fetch import FetchRequest

MOST_RUNS: Final = 60
"""Runs of schedules in which a mutant must be noticed."""


class Line(NamedTuple):
    """A line of a function, and what stands there in the mutant."""

    module: str
    function: str
    line: str
    mutant: str

    def install(self) -> None:
        """Replace the function. AssertionError when the line is gone: the mutant must follow the code."""
        module = importlib.import_module(self.module)
        owner: Any = module
        *path, name = self.function.split(".")
        for part in path:
            owner = getattr(owner, part)
        source = textwrap.dedent(inspect.getsource(inspect.getattr_static(owner, name)))
        assert source.count(self.line) == 1, f"{self.function} has no line {self.line!r}"
        found: dict[str, Any] = {}
        exec(
            compile(
                "from __future__ import annotations\n" + source.replace(self.line, self.mutant), self.module, "exec"
            ),
            module.__dict__,
            found,
        )
        for other in list(sys.modules.values()):
            # A function that other modules have imported by its name.
            if not path and getattr(other, name, None) is getattr(module, name):
                setattr(other, name, found[name])
        setattr(owner, name, found[name])


class Frames(NamedTuple):
    """A change of every Produce or Fetch before the leader gets it."""

    api_key: int
    change: Callable[[bytes], bytes]

    def install(self) -> None:
        """Change the requests."""
        receive = SimulatedBroker.receive

        def changed(broker: SimulatedBroker, channel: Any, frame: bytes, replied: Any) -> None:
            if struct.unpack_from(">h", frame, 4)[0] == self.api_key:
                frame = self.change(frame)
            receive(broker, channel, frame, replied)

        SimulatedBroker.receive = changed  # type: ignore[method-assign]


def _acknowledge_at_once(frame: bytes) -> bytes:
    """acks=1, whatever the producer has asked for: behind the header and a null transactional id."""
    return frame[:16] + struct.pack(">h", 1) + frame[18:]


def _without(**values: int) -> Callable[[bytes], bytes]:
    def change(frame: bytes) -> bytes:
        version, _, client = struct.unpack_from(">hih", frame, 6)
        start = 14 + max(client, 0) + 1
        request = FetchRequest.decode(frame[start:], version)
        for topic in request.topics:
            for partition in topic.partitions:
                for name, value in values.items():
                    setattr(partition, name, value)
        body = frame[4:start] + request.encode(version)
        return struct.pack(">i", len(body)) + body

    return change


MUTANTS: Final[dict[str, Line | Frames]] = {
    "the high watermark ignores a joining member": Line(
        "kafkapy.replica.isr",
        "IsrManager._change",
        "maximal = state.isr if joining is None else isr",
        "maximal = state.isr",
    ),
    "a leaving member counts as gone before the controller agrees": Line(
        "kafkapy.replica.isr",
        "IsrManager._change",
        "maximal = state.isr if joining is None else isr",
        "maximal = isr",
    ),
    "a follower is cut to its high watermark": Line(
        "kafkapy.replica.fetcher_manager",
        "ReplicaFetcherManager._begin",
        "self._fetch(followed)\n    else",
        "self._spawn(followed, self._cut(followed, log.high_watermark))\n    else",
    ),
    "a Fetch tells no last epoch": Frames(FETCH, _without(last_fetched_epoch=-1)),
    "a producer is answered before the high watermark": Frames(PRODUCE, _acknowledge_at_once),
    "AlterPartition is written whatever its partition epoch": Line(
        "kafkapy.controller.events.alter_partition",
        "_decide",
        "    if change.partition_epoch < current.version:\n        return ErrorCode.INVALID_UPDATE_VERSION\n",
        "    change = change._replace(partition_epoch=current.version)\n",
    ),
    "a replica outside the ISR is elected although one inside lives": Line(
        "kafkapy.controller.elections",
        "elect_for_offline_partition",
        "if replica in online and replica in isr:",
        "if replica in online:",
    ),
    "an election keeps the leader epoch": Line(
        "kafkapy.controller.partition_state_machine",
        "PartitionStateMachine._elect_once",
        "leader_epoch=state.leader_epoch + 1,",
        "leader_epoch=state.leader_epoch,",
    ),
    "requests for an earlier life of a broker are served": Line(
        "kafkapy.broker.controller_requests",
        "refusal",
        "broker_epoch < current",
        "False",
    ),
    "a request that a controller sent before another one is served after it": Line(
        "kafkapy.broker.controller_requests",
        "late",
        "context.broker.controller_order.is_late(*sender, context.correlation_id)",
        "False",
    ),
    "every live follower joins the ISR": Line(
        "kafkapy.replica.isr",
        "IsrManager.shrink",
        "    lagging = self.lagging(log, state.isr)\n",
        "    for replica in partition.assignment.replicas:\n"
        "        if replica not in state.isr:\n"
        "            return self._change(partition, (*state.isr, replica), joining=replica)\n"
        "    lagging = self.lagging(log, state.isr)\n",
    ),
    "a follower never drops what its leader does not have": Line(
        "kafkapy.replica.truncation",
        "truncation_of",
        "Truncation(min(end_of_epoch, answer.end_offset, end), True)",
        "Truncation(end, True)",
    ),
}


def noticed(name: str, first: int = 0, runs: int = MOST_RUNS) -> str:
    """The first error of the schedules with a mutant; nothing when they all pass. For a process of its own."""
    logging.disable(logging.CRITICAL)
    MUTANTS[name].install()
    with tempfile.TemporaryDirectory(prefix="kafkapy-simulation-", dir=BASE) as place:
        for seed in range(first, first + runs):
            error = schedules.run_one(seed, Path(place), unclean=False)
            if error:
                return error
    return ""


if __name__ == "__main__":
    raise_limit()
    said = noticed(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(said or "not noticed")
    sys.exit(not said)
