"""Writes docs/configuration.md from the keys themselves: `python -m kafkapy.config.reference [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkapy.config.broker import KEY_GROUPS, SYNONYM_CHAINS
from kafkapy.config.compatibility import TOPIC_REMOVED, is_removed
from kafkapy.config.config_def import MAX_DOUBLE, MAX_INT, MAX_LONG, ConfigKey, format_value
from kafkapy.config.effects import TOPIC_WITHOUT_EFFECT, WITHOUT_EFFECT
from kafkapy.config.topic import BROKER_SYNONYMS, TOPIC_CONFIG_DEF

PAGE = Path(__file__).parent.parent.parent / "docs" / "configuration.md"
_LIMITS = {MAX_INT: "2147483647 (no limit)", MAX_LONG: "9223372036854775807 (no limit)", MAX_DOUBLE: "no limit"}

_HEAD = """\
# Configuration

<!-- Written by `make docs` from kafkapy/config; changes belong there. -->

The keys are those of Apache Kafka 3.9 and 4.4, and a few of kafkapy's own (`kafkapy.*` and `metrics.listeners`). The
broker reads them from a properties file; `--override key=value` goes over the file:

    kafkapy-server config/server.properties --override listeners=PLAINTEXT://127.0.0.1:0 --override num.partitions=3

Without a file it is a cluster by itself: it listens on 127.0.0.1:9092 only, keeps its data in `./data/kafkapy-logs`,
its internal topics have one replica, and groups do not wait for more members (`group.initial.rebalance.delay.ms=0`).

A misspelt key, or a value that is not allowed, stops the start with one sentence: key, value, what is allowed, and the
line of the file. A key that is like no other is named in a warning and left alone: files for Apache Kafka have keys of
its plugins. Keys of kafkapy's plugins are known once the plugin is installed. A key that exists but has no effect in
this version is named in a warning at the start; so is an own key of a topic or a group.

*Compatibility* marks keys of Apache Kafka 3.9 that 4.4 does not have. They are taken as before, and shown by
DescribeConfigs (`kafka-configs --describe --all`) only where they are set.

**Update** says whether a broker key may change while the broker runs: *read-only* (no), for one broker (*per-broker*),
or for all of them (*cluster-wide*). Keys of TLS and SASL, and the connection limits, may be set for one listener:
`listener.name.<listener>.<key>`.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, keys in KEY_GROUPS.items():
        parts.append(f"\n## Broker: {title}\n")
        parts.extend(_section(keys, broker=True))
    parts.append("\n## Topics\n")
    parts.append("Set with CreateTopics and AlterConfigs; a topic that sets nothing takes the broker's key.\n")
    parts.extend(_section(TOPIC_CONFIG_DEF, broker=False))
    return "\n".join(parts).rstrip() + "\n"


def _section(keys: Iterable[ConfigKey], broker: bool) -> Iterator[str]:
    chains = {name: chain for chain in SYNONYM_CHAINS for name in chain}
    for key in keys:
        if key.internal:
            continue
        yield f"### `{key.name}`\n"
        yield f"{key.doc}\n"
        if key.name in (WITHOUT_EFFECT if broker else TOPIC_WITHOUT_EFFECT) and "no effect" not in key.doc:
            yield "Has no effect yet: the broker logs a warning when the key is set.\n"
        if is_removed(key.name) if broker else key.name in TOPIC_REMOVED:
            yield "Compatibility: Apache Kafka 4.4 has no such key.\n"
        facts = [f"Type: {key.type.label}", f"Default: {_default(key)}"]
        if key.allowed:
            facts.append(f"Allowed: {key.allowed}")
        facts.append(f"Importance: {key.importance.value}")
        if broker:
            facts.append(f"Update: {key.update_mode.value}")
            same = [f"`{name}`" for name in chains.get(key.name, ()) if name != key.name]
            if same:
                facts.append(f"Also: {', '.join(same)}")
        elif key.name in BROKER_SYNONYMS:
            facts.append("Broker: " + ", ".join(f"`{name}`" for name, _ in BROKER_SYNONYMS[key.name]))
        yield " · ".join(facts) + "\n"


def _default(key: ConfigKey) -> str:
    if key.default is None:
        return "not set"
    if not isinstance(key.default, (str, list)) and key.default in _LIMITS:
        return _LIMITS[key.default]
    text = format_value(key.type, key.default)
    return f"`{text}`" if text else "empty"


def main(arguments: list[str]) -> int:
    """Write the page, or with --check say whether it is what would be written (exit code 1 when it is not)."""
    text = page()
    if "--check" in arguments:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
