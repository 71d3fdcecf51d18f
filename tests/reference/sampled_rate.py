"""Kafka's rate over sampled windows and its throttle times, as plain Python: the model of the kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


@dataclass
class ModelRate:
    windows: int = 11
    window_ms: int = 1000
    samples: list[Sample] = field(default_factory=list)
    """The newest last; one more than the windows is kept, because an old one may overlap them."""

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples or now_ms - self.samples[-1].start_ms >= self.window_ms:
            self.samples.append(Sample(now_ms, now_ms))
            del self.samples[: -(self.windows + 1)]
        self.samples[-1].value += value
        self.samples[-1].last_ms = now_ms

    def window(self, now_ms: int) -> tuple[float, int]:
        """(sum of the live samples, ms that they are divided by)."""
        for sample in self.samples:
            if now_ms - sample.last_ms >= self.windows * self.window_ms:
                sample.start_ms = sample.last_ms = now_ms
                sample.value = 0.0
        elapsed = now_ms - min((sample.start_ms for sample in self.samples), default=now_ms)
        elapsed += max(self.windows - 1 - elapsed // self.window_ms, 0) * self.window_ms
        return sum(sample.value for sample in self.samples), max(elapsed, 1)

    def rate(self, now_ms: int) -> float:
        total, elapsed_ms = self.window(now_ms)
        return total * 1000.0 / elapsed_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        _, elapsed_ms = self.window(now_ms)
        rate = self.rate(now_ms)
        return 0 if rate <= bound else math.floor((rate - bound) / bound * elapsed_ms + 0.5)


@dataclass
class ModelBucket:
    """Kafka's TokenBucket: tokens since the first one, taken by a list of (time, count)."""

    limit: float
    burst_s: float
    now_s: float
    tokens: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = self.limit * self.burst_s

    def at(self, now_s: float) -> float:
        self.tokens = min(self.limit * self.burst_s, self.tokens + (now_s - self.now_s) * self.limit)
        self.now_s = now_s
        return self.tokens

    def take(self, count: float, now_s: float) -> None:
        self.at(now_s)
        self.tokens -= count
