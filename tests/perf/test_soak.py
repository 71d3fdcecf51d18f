"""Mixed load for half an hour (make soak; KAFKAPY_SOAK_MINUTES shortens it): memory and file descriptors do not drift.

The p99 of the end-to-end latency is printed with every sample and not judged: it depends on what else the machine does.
"""

from __future__ import annotations

import os
from pathlib import Path

import peers
import pytest
from work import soak

MINUTES = float(os.environ.get("KAFKAPY_SOAK_MINUTES", "30"))


@pytest.mark.soak
def test_memory_and_descriptors_do_not_drift_under_mixed_load(tmp_path: Path):
    samples = []
    for sample in soak.soak(MINUTES, peers.KAFKAPY, tmp_path):
        print({key: round(value, 2) for key, value in sample.items()}, flush=True)
        samples.append(sample)
    assert len(samples) >= 10
    assert soak.drift(samples, "rss_mb") < 1.1
    assert soak.drift(samples, "descriptors") < 1.1
