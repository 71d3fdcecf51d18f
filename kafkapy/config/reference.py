"""Writes docs/configuration.md from the keys.

Run `python -m kafkapy.config.reference [--check]`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkapy.config.broker import KEY_GROUPS, SYNONYM_CHAINS
from kafkapy.config.client_metrics import CLIENT_METRICS_CONFIG_DEF
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
or for all brokers too (*cluster-wide*). `listener.name.<listener>.<key>` sets a key of TLS or SASL, a connection limit
or `num.network.threads` for one listener.

## Changes while the broker runs

`kafkapy configs set broker 1 KEY=VALUE` changes a key of one broker, `kafkapy configs set broker default KEY=VALUE` of
all brokers; `kafka-configs` does the same. The change takes effect before the answer. A value comes from the first of:
the broker's own changes, the changes for all brokers, the properties file, the default.

- A change that cannot work is refused whole, also with `--dry-run` (validate_only): a thread count below half or above
  double of the present one, a listener whose address is in use, a store that does not open.
- `num.network.threads`: new threads get new connections; a thread that ends answers its requests, and its clients
  connect again. With `listener.name.<listener>.num.network.threads` a listener has threads for itself.
- `listeners`, `advertised.listeners` and `listener.security.protocol.map` add and remove listeners and change addresses
  for clients. A listener keeps its address and protocol, and the listener between brokers stays. Stores are set for one
  listener (`listener.name.<listener>.ssl.keystore.location`).
- A secret needs `password.encoder.secret` where others may read the metadata store (ZooKeeper, etcd). It is stored in
  Kafka's format, for one broker only.
- `kafkapy configs set broker-logger 1 kafka.request.logger=DEBUG` changes the level of a logger until the broker stops:
  FATAL, ERROR, WARN, INFO, DEBUG or TRACE. The names are Kafka's: `root`, `kafka` (everything), `kafka.controller`,
  `kafka.coordinator`, `kafka.log`, `kafka.network`, `kafka.server`, `kafka.request.logger` (each request),
  `kafka.authorizer.logger` (each decision), `state.change.logger`, `org.apache.kafka.common.security`, and `kafkapy`
  for parts that Kafka does not have.
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
    parts.append("\n## Client metrics\n")
    parts.append(
        "`kafkapy configs set client-metrics NAME KEY=VALUE` makes a subscription (KIP-714). "
        "Without keys there is none.\n"
    )
    parts.extend(_section(CLIENT_METRICS_CONFIG_DEF, broker=False))
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
