"""Writes docs/configuration.md from the keys.

Run `python -m kafkapy.config.reference [--check]`.
"""

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

The broker has the keys of Apache Kafka 3.9 and 4.4, and a few more (`kafkapy.*` and `metrics.listeners`). It reads them
from a properties file; `--override key=value` overrides the file:

    kafkapy-server config/server.properties --override listeners=PLAINTEXT://127.0.0.1:0 --override num.partitions=3

Without a file, the broker is a cluster of one broker. It listens on 127.0.0.1:9092 only, keeps its data in
`./data/kafkapy-logs`, gives its internal topics one replica, and does not delay the first rebalance of a group
(`group.initial.rebalance.delay.ms=0`).

A misspelt key or a wrong value stops the start with one sentence: key, value, allowed values, and the line of the file.
A key unlike any other causes only a warning, because files for Apache Kafka contain keys of its plugins. The broker
knows the keys of an installed kafkapy plugin. At the start, the broker warns about keys without effect in this
version, including the keys of topics and groups.

*Compatibility* marks keys of Apache Kafka 3.9 that 4.4 does not have. The broker accepts them, and DescribeConfigs
(`kafka-configs --describe --all`) shows them only when they are set.

**Update** tells whether a broker key may change while the broker runs: *read-only* (no), for one broker (*per-broker*),
or for all brokers (*cluster-wide*). `listener.name.<listener>.<key>` sets a key of TLS or SASL, or a connection limit,
for one listener.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, keys in KEY_GROUPS.items():
        parts.append(f"\n## Broker: {title}\n")
        parts.extend(_section(keys, broker=True))
    parts.append("\n## Topics\n")
    parts.append("CreateTopics and AlterConfigs set these keys. A topic without a key uses the broker's key.\n")
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
            yield "No effect yet: the broker logs a warning when the key is set.\n"
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
    """Write the page.

    With --check, exit code 1 when the page is out of date.
    """
    text = page()
    if "--check" in arguments:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
