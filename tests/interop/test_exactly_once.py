"""Exactly once over kills: confluent-kafka consumes, transforms and produces; worker and broker are killed at random,
workers are frozen, replaced and woken up as zombies.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from interop.pipeline import SOURCE, TARGET, Pipeline

WORKER = Path(__file__).with_name("exactly_once_worker.py")


def command(bootstrap: str) -> list[str]:
    return [sys.executable, str(WORKER), bootstrap, SOURCE, TARGET, "pipeline"]


def test_each_record_passes_a_pipeline_exactly_once(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, command, 20_000, kills=4, zombies=1)
    pipeline.run()
    assert pipeline.done["worker frozen"] == 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_records_pass_a_pipeline_exactly_once(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, command, 1_000_000, kills=40, zombies=6)
    pipeline.run()
    # The dice decide what is killed; an abort is in each run of that length.
    assert pipeline.done["aborted records"] > 0
    assert pipeline.done["zombie fenced"] > 0
