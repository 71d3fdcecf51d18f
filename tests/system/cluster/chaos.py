"""Random faults on a cluster under load, one round after another."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Protocol

from system.cluster.processes import CLEAN, SESSION_MS, Cluster, wait_until

TOPIC = "load"


class Load(Protocol):
    """A load that counts what is acknowledged."""

    @property
    def confirmed(self) -> int: ...


class Chaos:
    """Rounds of faults. Each ends with all brokers alive, all replicas in sync and all loads going on.

    `told` lists the rounds for the message of a failure.
    """

    def __init__(self, cluster: Cluster, loads: list[Load], seed: int) -> None:
        self.cluster = cluster
        self.loads = loads
        self.told: list[str] = []
        self._random = random.Random(seed)

    def run(self, rounds: int, faults: list[str] | None = None) -> None:
        """So many rounds, of these faults in turn or of random ones, once all loads go on."""
        # With a dead broker the internal topics cannot get their replicas.
        self._goes_on("before the first round")
        self.cluster.wait_until_in_sync()
        for number in range(rounds):
            fault = faults[number % len(faults)] if faults else self._random.choice(sorted(self.faults()))
            self.told.append(f"round {number}: {fault}")
            try:
                self.faults()[fault]()
                self.cluster.wait_until_in_sync()
                self._goes_on("after the round")
            except Exception as error:
                raise AssertionError(f"{'; '.join(self.told[-5:])}: {error}") from error

    def faults(self) -> dict[str, Callable[[], None]]:
        """The kinds of rounds by name."""
        return {
            "a killed broker": lambda: self._kill(self._any()),
            "a killed controller": lambda: self._kill(self.cluster.controller()),
            "a killed leader": lambda: self._kill(self.cluster.leader(TOPIC)),
            "a killed leader with an empty disk": lambda: self._kill(self.cluster.leader(TOPIC), wipe=True),
            "a restarted broker": lambda: self._restart(self._any()),
            "a restarted controller": lambda: self._restart(self.cluster.controller()),
            "a leader that stands still beyond its session": lambda: self._pause(self.cluster.leader(TOPIC), 2.0),
            "a controller that stands still beyond its session": lambda: self._pause(self.cluster.controller(), 2.0),
            "a broker that stands still for a moment": lambda: self._pause(self._any(), 0.2),
        }

    def _any(self) -> int:
        return self._random.choice(sorted(self.cluster.members))

    def _kill(self, broker_id: int, wipe: bool = False) -> None:
        member = self.cluster[broker_id]
        member.kill()
        self._goes_on(f"without broker {broker_id}")
        if wipe:
            member.wipe()
        member.start()

    def _restart(self, broker_id: int) -> None:
        member = self.cluster[broker_id]
        code = member.stop(120)
        assert code in CLEAN, f"broker {broker_id} ended with exit code {code}: {member.log_tail()}"
        self._goes_on(f"without broker {broker_id}")
        member.start()

    def _pause(self, broker_id: int, sessions: float) -> None:
        member = self.cluster[broker_id]
        member.pause()
        try:
            time.sleep(sessions * SESSION_MS / 1000)
            if sessions > 1:
                self._goes_on(f"while broker {broker_id} stands still")
        finally:
            member.resume()

    def _goes_on(self, when: str) -> None:
        """Wait until each load has more acknowledgements."""
        before = [load.confirmed for load in self.loads]
        for load, count in zip(self.loads, before, strict=True):
            wait_until(lambda load=load, count=count: load.confirmed > count, f"{type(load).__name__} goes on {when}")
