"""Random lives of consumer groups (see consumer_group_life.py and mixed_group_life.py)."""

from __future__ import annotations

import os
from typing import Any

import pytest
from coordinator.group.consumer_group_life import ConsumerGroupLife
from coordinator.group.mixed_group_life import MixedGroupLife
from hypothesis import HealthCheck, settings


def run(machine: type[ConsumerGroupLife], make_bench: Any, examples: int, steps: int = 50) -> None:
    machine.bench_type = make_bench
    test = machine.TestCase
    test.settings = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
    )
    test("runTest").runTest()


def test_random_lives_of_a_group(make_bench: Any) -> None:
    run(ConsumerGroupLife, make_bench, 50)


def test_random_lives_of_a_group_with_members_of_both_protocols(make_bench: Any) -> None:
    run(MixedGroupLife, make_bench, 50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [ConsumerGroupLife, MixedGroupLife])
def test_thousands_of_lives(machine: type[ConsumerGroupLife], make_bench: Any) -> None:
    run(machine, make_bench, int(os.environ.get("KAFKAPY_MODEL_EXAMPLES", "3000")), steps=80)
