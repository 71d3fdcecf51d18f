"""Random schedules of faults and requests, from a seed; each ends with a whole cluster whose replicas are equal.

    PYTHONHASHSEED=0 python tests/simulation/schedules.py FIRST LAST [--log]

runs the schedules of these seeds and prints those that break a rule. The order of sets depends on PYTHONHASHSEED, so a
seed means the same schedule in each process that has 0 there.

A disk loses records (a power failure, or a new disk) only while all other replicas are healthy; nothing else fails
until it has caught up, and its broker starts when the ISR goes on without it. Apache Kafka promises no more: without
ELR (KIP-966) a member of the ISR that comes back with an older log may be elected, and a broker that comes back while
there is no controller, and then controls, does not know that it was gone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import tempfile
import time
import traceback
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent.parent)]

from simulation.broker import SimulatedBroker
from simulation.clock import NOBODY, Life
from simulation.cluster import BASE, SimulatedCluster, simulate
from simulation.network import LONGEST_DELAY_S

from kafkapy.broker.descriptors import raise_limit
from kafkapy.errors import KafkaError
from kafkapy.metadata.store import MetadataStoreError
from kafkapy.types import TopicPartition

SCHEDULES: Final = 20
"""Schedules of one run, each on the cluster that the one before has left whole."""
STEPS: Final = 6
"""Steps of one schedule."""
COLLECTS: Final = 4
"""Runs between two collections of what they leave, which has file descriptors: those of the dead brokers."""
TP: Final = TopicPartition("t", 0)


class Schedule:
    """One run on one cluster. `unclean`: elections outside the ISR are allowed, and so is the loss of records."""

    def __init__(self, cluster: SimulatedCluster, *, unclean: bool = False) -> None:
        self.cluster = cluster
        self.dice = cluster.dice
        self.unclean = unclean
        self.schedules = SCHEDULES
        self.steps = STEPS
        self.produced = 0
        self.late = False
        """Whether messages may be late."""
        self.tasks: dict[asyncio.Task[None], Life] = {}
        self.trace: list[str] = []

    async def run(self) -> None:
        cluster, dice = self.cluster, self.dice
        configs = {}
        if dice.random() < 0.3:
            configs["segment.bytes"] = "300"
        if self.unclean:
            configs["unclean.leader.election.enable"] = "true"
            cluster.checks.allows_loss = True
        replicas = list(cluster.brokers)
        dice.shuffle(replicas)
        await cluster.create("t", [replicas[:3]], configs)
        # Each run has favourites among the faults, and some that never come: combinations of few are the rare ones.
        faults = [self.kill, self.shut_down, self.cut_link, self.cut_both, self.isolate, self.lossy]
        faults += [self.cut_store, self.expire, self.elect, self.fail_power, self.lose_disk]
        choices = (
            [self.produce] * 8
            + [self.revive, self.revive, self.heal, self.heal, self.restore_store]
            + [self.flush, self.delete_records, self.wait, self.wait]
            + [fault for fault in faults for _ in range(dice.choice((0, 1, 1, 3)))]
        )
        for number in range(self.schedules):
            self.trace.append(f"schedule {number}")
            for _ in range(self.steps):
                step = dice.choice(choices)
                self.trace.append(f"  {cluster.loop.time() - 1000:.3f} {step.__name__}")
                await step()
                await asyncio.sleep(dice.choice((0.0, 0.001, 0.005, 0.05, 0.4)) * dice.random())
            self.trace.append(f"  {cluster.loop.time() - 1000:.3f} repair")
            await self.repair()

    async def repair(self) -> None:
        """End all faults; the rules of the end hold."""
        cluster = self.cluster
        cluster.heal()
        # Whoever is starting gets there; whoever waits for a dead leader hears so.
        await cluster.until(
            lambda: all(broker.ready or not broker.alive for broker in cluster.brokers.values()), "starts"
        )
        await cluster.until(lambda: not self.fragile, "the lost disk has its records again")
        await cluster.repair()
        await cluster.until(lambda: not any(life.alive for life in self.tasks.values()), "requests end")
        if self.late:
            # What is still on its way changes nothing.
            await asyncio.sleep(LONGEST_DELAY_S)
            self.late = False
        await cluster.until(cluster.whole, "all replicas are in sync")
        cluster.checks.compare()

    # --- requests -----------------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any], broker: SimulatedBroker | None = None) -> None:
        """A request that may fail in any way that has an error code."""

        async def quietly() -> None:
            with suppress(KafkaError, MetadataStoreError, asyncio.CancelledError):
                await work

        loop = self.cluster.loop
        task = loop.create_task(quietly(), context=loop.world if broker is None else broker.context)
        self.tasks[task] = NOBODY if broker is None else broker.life
        task.add_done_callback(self.tasks.pop)

    async def produce(self) -> None:
        """Some records, to the leader that some broker knows, to several at once if they disagree."""
        leaders = {broker.id for broker in self.cluster.alive if (log := broker.log()) is not None and log.is_leader}
        for _ in range(self.dice.randrange(1, 4)):
            for leader in sorted(leaders):
                self.produced += 1
                acks = -1 if self.dice.random() < 0.85 else 1
                value = b"record %d of %d" % (self.produced, self.cluster.seed)
                self.spawn(self.cluster.produce(value, to=leader, acks=acks, records=self.dice.choice((1, 1, 3))))
            await asyncio.sleep(0.002 * self.dice.random())

    async def delete_records(self) -> None:
        leader = self.cluster.leader()
        if leader is not None and leader.log() is not None:
            offset = self.dice.randrange(leader.log().high_watermark + 1)
            self.spawn(leader.replicas.delete_records(TP, offset), leader)

    async def elect(self) -> None:
        controller = self.cluster.controller
        if controller is not None:
            self.spawn(controller.controller.elect_leaders([TP], unclean=False, timeout_ms=1000), controller)

    async def flush(self) -> None:
        for broker in self.cluster.alive:
            log = broker.log()
            if log is not None and self.dice.random() < 0.7:
                log.flush()
                if self.dice.random() < 0.5:
                    broker.log_manager.checkpoints.write_recovery_points()

    async def wait(self) -> None:
        await asyncio.sleep(self.dice.choice((0.05, 0.5, 1.5, 4.0, 7.0)) * self.dice.random())

    # --- faults -------------------------------------------------------------------------------------------------------

    @property
    def fragile(self) -> bool:
        """Whether some disk has lost records that it has not got back."""
        return any(broker.lost_disk for broker in self.cluster.brokers.values())

    async def kill(self) -> None:
        alive = self.cluster.alive
        if alive and not self.fragile and len(alive) > (0 if self.dice.random() < 0.2 else 1):
            self.dice.choice(alive).crash()

    async def revive(self) -> None:
        dead = [broker for broker in self.cluster.brokers.values() if not broker.alive and not broker.lost_disk]
        if dead:
            self.spawn(self.dice.choice(dead).start())

    async def shut_down(self) -> None:
        """Ask the controller first, then stop (here: die, with files flushed or not)."""
        controller, alive = self.cluster.controller, self.cluster.alive
        if controller is None or len(alive) < 2 or self.fragile:
            return
        broker = self.dice.choice(alive)
        self.spawn(controller.controller.controlled_shutdown(broker.id, broker.controller.broker_epoch), controller)
        await asyncio.sleep(self.dice.choice((0.002, 0.05, 1.0)))
        broker.crash()

    async def fail_power(self) -> None:
        await self.lose(self.cluster.fail_power)

    async def lose_disk(self) -> None:
        await self.lose(self.cluster.lose_disk)

    async def lose(self, fault: Any) -> None:
        cluster = self.cluster
        state = cluster.state()
        healthy = (
            not cluster.network.cut
            and len(cluster.alive) == len(cluster.brokers)
            and not any(broker.store.cut for broker in cluster.alive)
        )
        if not healthy or state is None or self.fragile or len(state.isr) < 3:
            return
        broker = self.dice.choice(cluster.alive)
        broker.lost_disk = True
        fault(broker.id)
        self.spawn(self.recover(broker))

    async def recover(self, broker: SimulatedBroker) -> None:
        """Start it again, and wait until it has what its leader has."""
        cluster = self.cluster
        await asyncio.sleep(self.dice.choice((0.0, 1.0, 4.0)))
        while (state := cluster.state()) is not None and broker.id in state.isr and not broker.alive:
            await asyncio.sleep(0.1)
        while not broker.alive:
            await broker.start()
        while True:
            leader, log, state = cluster.leader(), broker.log(), cluster.state()
            theirs = None if leader is None else leader.log()
            committed = cluster.checks.committed.get(TP)
            if theirs is not None and log is not None and state is not None and log.leader_epoch == theirs.leader_epoch:
                end = 0 if committed is None else committed.end
                if broker.id in state.isr and log.log_end_offset >= max(end, theirs.high_watermark):
                    broker.lost_disk = False
                    return
            await asyncio.sleep(0.1)

    async def cut_link(self) -> None:
        if not self.fragile:
            one, other = self.dice.sample(list(self.cluster.brokers), 2)
            self.cluster.network.cut.add((one, other))

    async def cut_both(self) -> None:
        if not self.fragile:
            one, other = self.dice.sample(list(self.cluster.brokers), 2)
            self.cluster.network.cut |= {(one, other), (other, one)}

    async def isolate(self) -> None:
        if not self.fragile:
            self.cluster.network.isolate(self.dice.choice(list(self.cluster.brokers)))

    async def heal(self) -> None:
        self.cluster.network.heal()

    async def lossy(self) -> None:
        if not self.fragile:
            self.cluster.network.loss = self.dice.choice((0.02, 0.1, 0.3))
            self.cluster.network.late = self.dice.choice((0.0, 0.05, 0.2))
            self.late = True

    async def cut_store(self) -> None:
        alive = [broker for broker in self.cluster.alive if not broker.store.cut]
        if alive and not self.fragile:
            self.dice.choice(alive).store.lose_connection()

    async def expire(self) -> None:
        alive = [broker for broker in self.cluster.alive if broker.store.session_id and not broker.store.cut]
        if alive and not self.fragile:
            store = self.dice.choice(alive).store
            store.lose_connection()
            await store.expire()
            await asyncio.sleep(self.dice.choice((0.0, 0.01, 1.0)))
            if store.cut:
                store.restore_connection()

    async def restore_store(self) -> None:
        for broker in self.cluster.alive:
            if broker.store.cut and self.dice.random() < 0.7:
                broker.store.restore_connection()


def run_one(seed: int, directory: Path | None = None, *, unclean: bool | None = None) -> str:
    """The schedules of one seed; the error, or nothing. `unclean` None: one run of ten has unclean elections."""
    made: list[Schedule] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        schedule = Schedule(cluster, unclean=seed % 10 == 9 if unclean is None else unclean)
        made.append(schedule)
        await schedule.run()

    try:
        simulate(scenario, seed=seed, directory=directory)
    except Exception:
        trace = "\n".join(made[0].trace) if made else ""
        return f"seed {seed}\n{trace}\n{traceback.format_exc()}"
    return ""


def main(arguments: list[str]) -> int:
    """Run the schedules of a range of seeds."""
    first, last = int(arguments[0]), int(arguments[1])
    logging.disable(logging.CRITICAL)
    if "--log" in arguments:
        logging.disable(logging.NOTSET)
        logging.basicConfig(level=logging.INFO, format="%(message)s")
    raise_limit()
    failures = 0
    began = time.process_time()
    gc.disable()
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="kafkapy-simulation-", dir=BASE) as place:
        for seed in range(first, last):
            error = run_one(seed, Path(place))
            if error:
                failures += 1
                print(error, flush=True)
            if seed % COLLECTS == 0:
                gc.collect()
    count = SCHEDULES * (last - first)
    print(f"{count} schedules, {failures} failed, {1000 * (time.process_time() - began) / count:.1f} ms each")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
