"""The samples of one scrape: gathered, limited and encoded in slices.

A scrape runs on a separate thread. It rests after each slice, because the control loop needs the GIL meanwhile. It
makes a million objects and all of them go when it ends, so the garbage collector rests until then: looking through all
that a broker holds takes it a second, with the GIL.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kafkapy.broker.metric_names import METRICS, family
from kafkapy.garbage import resting

__all__ = ["Filter", "Samples", "encode_in_slices"]

SLICE: Final = 250
"""Samples, or other steps of about a microsecond each, between two rests."""
REST_S: Final = 0.0002
"""A rest: long enough for a waiting thread to take the GIL."""
EOF: Final = b"# EOF\n"


class Filter:
    """The names in which `include` is found, and `exclude` is not."""

    def __init__(self, include: str, exclude: str) -> None:
        self._include = re.compile(include).search
        self._exclude = re.compile(exclude).search

    def __call__(self, name: str) -> bool:
        """Whether a scrape shows the name."""
        return self._include(name) is not None and self._exclude(name) is None


class Samples:
    """The families of one scrape, in the order of METRICS. On the scrape's thread."""

    def __init__(self, most_bounded: int) -> None:
        self.families: dict[str, Any] = {spec.name: family(spec) for spec in METRICS}
        self.dropped = 0
        self._left = most_bounded
        self._steps = 0

    def step(self, count: int = 1) -> None:
        """Rest, after every SLICE steps."""
        self._steps += count
        if self._steps >= SLICE:
            self.rest()

    def rest(self) -> None:
        """Rest now."""
        self._steps = 0
        time.sleep(REST_S)

    @property
    def full(self) -> bool:
        """Whether more samples by partition are only counted."""
        return self._left <= 0

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add a sample."""
        self.step()
        self.families[name].add_metric(labels, value)

    def add_bounded(self, name: str, value: float, *labels: str) -> None:
        """Add a sample by partition or client, up to the limit.

        Beyond it the sample is only counted.
        """
        if self._left > 0:
            self._left -= 1
            self.add(name, value, *labels)
        else:
            self.step()
            self.dropped += 1


class _Part(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def encode_in_slices(collector: Collector, encode: Callable[[Any], bytes]) -> bytes:
    """The exposition of all metrics by an encoder of prometheus_client, slice by slice."""
    with resting(keeps=False):
        return _encoded(collector, encode)


def _encoded(collector: Collector, encode: Callable[[Any], bytes]) -> bytes:
    parts = []
    end = b""
    for metric in collector.collect():
        samples = metric.samples
        for start in range(0, max(len(samples), 1), SLICE):
            part = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            part.samples = samples[start : start + SLICE]
            text = encode(_Part(part))
            if text.endswith(EOF):
                text, end = text[: -len(EOF)], EOF
            parts.append(text if start == 0 else _without_header(text))
            if len(part.samples) == SLICE:
                time.sleep(REST_S)
    return b"".join(parts) + end


def _without_header(text: bytes) -> bytes:
    while text.startswith(b"# "):
        text = text[text.index(b"\n") + 1 :]
    return text
