"""Settings that make a broker slower are named; its own example of a configuration has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkapy.broker.config_effects import ConfigEffects
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.costs import costly_settings
from kafkapy.config.properties import load_properties

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("given", "cores", "key"),
    [
        ({"num.network.threads": "3"}, 2, "num.network.threads"),
        ({"socket.receive.buffer.bytes": "102400"}, 2, "socket.receive.buffer.bytes"),
        ({"log.flush.interval.messages": "1"}, 2, "log.flush.interval.messages"),
    ],
)
def test_a_setting_that_costs(given: dict[str, str], cores: int, key: str) -> None:
    [cost] = costly_settings(BrokerConfig(given), cores)
    assert (cost.key, cost.value) == (key, given[key])


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"num.network.threads": "2"},
        {"socket.receive.buffer.bytes": "-1"},
        {"socket.receive.buffer.bytes": str(4 << 20)},
        {"log.flush.interval.messages": "1000000"},
    ],
)
def test_settings_that_cost_nothing(given: dict[str, str]) -> None:
    assert list(costly_settings(BrokerConfig(given), 2)) == []


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.properties")), ids=lambda path: path.name)
def test_the_examples_cost_nothing_on_one_core(path: Path) -> None:
    assert list(costly_settings(BrokerConfig(load_properties(path)), 1)) == []


def test_the_broker_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    effects, slow = ConfigEffects(), BrokerConfig({"num.network.threads": "100000"})
    for config in (slow, slow, BrokerConfig({}), slow):
        effects.check_broker(config)
    said = [each for each in caplog.messages if "makes the broker slower" in each]
    assert said == [said[0]] * 2
    assert said[0].startswith("Configuration num.network.threads=100000 makes the broker slower: more network threads")
