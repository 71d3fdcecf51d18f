"""Random faults on a cluster under load, one round after another."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from system.cluster.faults import TOPIC, Faults
from system.cluster.processes import Cluster, wait_until

__all__ = ["TOPIC", "Chaos", "Load"]


class Load(Protocol):
    """A load that counts what is acknowledged."""

    @property
    def confirmed(self) -> int: ...


class Chaos:
    """Rounds of faults. Each ends with all brokers alive, all replicas in sync and all loads going on.

    `told` lists the rounds for the message of a failure; the file `rounds` beside the brokers has their times too.
    """

    def __init__(self, cluster: Cluster, loads: list[Load], seed: int) -> None:
        self.cluster = cluster
        self.loads = loads
        self.told: list[str] = []
        self._random = random.Random(seed)
        self.faults = Faults(cluster, self._random).kinds
        """The kinds of rounds by name."""

    def run(self, rounds: int, names: Sequence[str] | None = None) -> None:
        """So many rounds, of these faults in turn or of random ones, once all loads go on."""
        # With a dead broker the internal topics cannot get their replicas.
        self._goes_on("before the first round")
        self.cluster.wait_until_in_sync()
        for number in range(rounds):
            name = names[number % len(names)] if names else self._random.choice(sorted(self.faults))
            self._tell(f"round {number}: {name}")
            try:
                self._round(name)
            except Exception as error:
                raise AssertionError(f"{'; '.join(self.told[-5:])}: {error}") from error

    def _round(self, name: str) -> None:
        fault = self.faults[name]
        with fault.begin():
            time.sleep(fault.sessions * self.cluster.session_ms / 1000)
            if not fault.stops_load:
                self._goes_on("during the fault")
        self._note("the fault has ended")
        self.cluster.wait_until_in_sync()
        self._note("all replicas are in sync")
        self._goes_on("after the fault")
        self._note("all loads have gone on")

    def _tell(self, text: str) -> None:
        self.told.append(text)
        self._note(text)

    def _note(self, text: str) -> None:
        with (self.cluster.directory / "rounds").open("a") as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {text}\n")

    def _goes_on(self, when: str) -> None:
        """Wait until each load has more acknowledgements."""
        before = [load.confirmed for load in self.loads]
        for load, count in zip(self.loads, before, strict=True):
            wait_until(lambda load=load, count=count: load.confirmed > count, f"{type(load).__name__} goes on {when}")
