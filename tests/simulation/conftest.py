"""A cluster of brokers in one process: real controllers, ISR rules, followers and logs on a virtual clock.

    from simulation.cluster import SimulatedCluster, simulate

    def test_a_record_survives_its_leader() -> None:
        async def scenario(cluster: SimulatedCluster) -> None:
            await cluster.create("t", [(0, 1, 2)])          # one partition, its preferred leader is broker 0
            await cluster.produce(b"a record")              # acks=all
            cluster[0].crash()                              # SIGKILL
            await cluster.until(lambda: cluster.leader() is not None, "another leader")
            await cluster.restart(0)
            await cluster.repair()                          # all in sync; the rules of the end hold

        simulate(scenario)

What a test has at hand:

    cluster[0].crash(), fail_power(0), lose_disk(0), restart(0, 1)      lives and disks
    cluster.network.isolate(0), .cut.add((0, 1)), .loss, .drop, .heal() links; each leads one way
    cluster[0].store.lose_connection(), .restore_connection()           sessions; `ensemble.session_timeout_s`
    cluster[0].log(), cluster.leader(), cluster.state(), .in_sync(0, 1) what is there now
    cluster.describe()                                                  everything, as text

Every change of anything is followed by a look at the rules of checks.py, which fail the test. Time is virtual: waiting
costs nothing. Chance comes from the seed alone (`simulate(scenario, seed=7)`), also the interruptions of long work by
kafkapy.slices.

    clock.py        the event loop; a broker's death is the end of its context
    network.py      messages between brokers and clients
    store.py        sessions on one metadata store
    disk.py         what a power failure leaves
    broker.py       one broker: the production code between simulated edges
    cluster.py      all of them, and clients
    checks.py       the rules
    schedules.py    random schedules (also a program)
    mutants.py      weakenings of the protocol that the schedules notice (also a program)
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """Descriptors for many brokers in one process.

    The logs of a broker that crashed keep theirs until they are collected. A broker process raises its own limit.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    gc.collect()
    yield
    gc.collect()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
