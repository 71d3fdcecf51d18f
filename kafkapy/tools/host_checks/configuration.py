"""The configuration: keys, open doors, replicas, secrets, certificates."""

from __future__ import annotations

import datetime
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafkapy.broker.listener_security import check_stores
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.costs import costly_settings
from kafkapy.config.effects import ineffective_keys
from kafkapy.config.properties import load_properties
from kafkapy.errors import ConfigError, KafkaError
from kafkapy.tools.host_checks.finding import Finding, Subject, problem, satisfied, warning
from kafkapy.tools.host_checks.ports import is_loopback

__all__ = ["check"]

SOON_DAYS: Final = 30
ADVISED_REPLICAS: Final = 3
INTERNAL_FACTORS: Final = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
SHARE_FACTOR: Final = "share.coordinator.state.topic.replication.factor"
TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


def check(subject: Subject) -> Iterator[Finding]:
    """The findings."""
    config = subject.config
    yield satisfied("file", subject.properties or "none: the built-in configuration of one broker")
    yield from _keys(config)
    yield from _places(config)
    yield from _doors(config)
    yield from _replicas(config)
    yield from _secrets(subject)
    yield from _certificates(config)


def _keys(config: BrokerConfig) -> Iterator[Finding]:
    why = "The broker ignores a key that neither it nor an installed plugin knows."
    for name in config.unknown_keys:
        yield warning(name, f"unknown key{_place_of(config, name)}", "Correct the key, or remove its line.", why)
    why = "The key changes nothing in this broker, or another key switches its part off."
    for name in ineffective_keys(config):
        yield warning(name, f"without effect{_place_of(config, name)}", "Remove the line.", why)
    for cost in costly_settings(config, len(os.sched_getaffinity(0))):
        why = f"{cost.why[0].upper()}{cost.why[1:]}."
        yield warning(cost.key, f"{cost.value} is slow{_place_of(config, cost.key)}", "Remove the line.", why)


def _place_of(config: BrokerConfig, name: str) -> str:
    line, source = config.place_of(name)
    return f" ({source}, line {line})" if line is not None else ""


def _places(config: BrokerConfig) -> Iterator[Finding]:
    if config.keeps_nothing:
        return
    for directory in map(Path, config.log_dirs):
        if not directory.is_absolute():
            why = "The directory depends on the working directory: another one begins with an empty broker."
            change = "Write an absolute path into log.dirs."
            yield warning("log.dirs", f"{directory} is relative to {Path.cwd()}", change, why)
        elif any(directory.is_relative_to(each) for each in TEMPORARY):
            why = "The system deletes files there, old ones daily and all at a restart."
            yield warning("log.dirs", f"{directory} is temporary", "Choose a place such as /var/lib/kafkapy.", why)


def _doors(config: BrokerConfig) -> Iterator[Finding]:
    """Listeners that other machines reach without a login or in clear text."""
    authorizer = config.get_str("authorizer.class.name")
    for endpoint in config.listeners:
        if is_loopback(endpoint.host):
            continue
        subject, protocol = endpoint.connection_string, endpoint.security_protocol
        asks = protocol.sasl or (protocol.tls and _client_auth(config, endpoint.listener_name) == "required")
        if not asks:
            why = "Everybody who reaches the port reads, writes and deletes."
            change = "Use SASL_SSL, or SSL with ssl.client.auth=required, and an authorizer (docs/security.md)."
            yield warning(subject, "open to other machines without a login", change, why)
        elif not authorizer:
            why = "Every user may do everything; authorizer.class.name is empty."
            change = "Set authorizer.class.name=kafka.security.authorizer.AclAuthorizer and super.users."
            yield warning(subject, "logins without an authorizer", change, why)
        if protocol.sasl and not protocol.tls:
            why = "Records, and with PLAIN passwords too, cross the network in clear text."
            yield warning(subject, "logins without TLS", "Use SASL_SSL (docs/security.md).", why)


def _client_auth(config: BrokerConfig, listener: str) -> str:
    return str(config.for_listener(listener, "ssl.client.auth"))


def _replicas(config: BrokerConfig) -> Iterator[Finding]:
    alone = config.metadata_store in ("embedded", "memory")
    for key in INTERNAL_FACTORS:
        factor = config.get_int(key)
        if alone and factor > 1:
            why = f"The metadata store {config.metadata_store} is a cluster of one broker: the topic cannot be created."
            yield problem(key, f"{factor} replicas", f"Set {key}=1, or use a shared metadata store.", why)
        elif not alone and factor < ADVISED_REPLICAS:
            why = "The failure of one broker stops its groups or transactions."
            yield warning(key, f"{factor} replicas", f"Set {key}={ADVISED_REPLICAS}.", why)
    key, factor = SHARE_FACTOR, config.get_int(SHARE_FACTOR)
    if alone and factor > 1:
        why = "The cluster has one broker: the topic of share groups' states cannot be created, so none works."
        change = f"Set {key}=1 and share.coordinator.state.topic.min.isr=1."
        yield warning(key, f"{factor} replicas", change, why)
    isr, factor = config.get_int("transaction.state.log.min.isr"), config.get_int(INTERNAL_FACTORS[1])
    if isr > factor:
        key = "transaction.state.log.min.isr"
        why = f"No transaction commits with fewer in-sync replicas than that, and there are only {factor}."
        yield problem(key, f"{isr}", f"Set {key}={factor} or less.", why)
    replicas, least = config.get_int("default.replication.factor"), config.get_int("min.insync.replicas")
    if alone and replicas > 1:
        why = "The cluster has one broker: no topic is created without a number of replicas."
        yield problem("default.replication.factor", str(replicas), "Set default.replication.factor=1.", why)
    if least > (1 if alone else replicas):
        why = "Records with acks=all are refused: a topic has fewer replicas than that."
        yield problem("min.insync.replicas", str(least), "Set it to the number of replicas or less.", why)
    if alone:
        return
    if replicas < ADVISED_REPLICAS:
        why = "A topic that is created without a number loses its records with one disk."
        change = f"Set default.replication.factor={ADVISED_REPLICAS} and min.insync.replicas=2."
        yield warning("default.replication.factor", str(replicas), change, why)
    elif least < 2:
        why = "acks=all is satisfied by the leader alone, when the others are behind; its disk then has the only copy."
        yield warning("min.insync.replicas", str(least), "Set min.insync.replicas=2.", why)
    if config.get_bool("unclean.leader.election.enable"):
        key = "unclean.leader.election.enable"
        why = "A replica that is behind may become leader, and acknowledged records are gone."
        yield warning(key, "true", f"Set {key}=false.", why)


def _secrets(subject: Subject) -> Iterator[Finding]:
    if subject.properties is None:
        return
    config, path = subject.config, Path(subject.properties)
    written = load_properties(path)
    named = [
        name
        for name, value in written.items()
        if (key := config.key_for(name)) is not None and key.sensitive and value and "${" not in value
    ]
    if named and path.stat().st_mode & stat.S_IROTH:
        why = "All users of the machine can read the secrets of " + ", ".join(named) + "."
        yield warning(str(path), "has secrets and is readable by all", f"chmod o-rwx {path}", why)


def _certificates(config: BrokerConfig) -> Iterator[Finding]:
    listeners = [each for each in config.listeners if each.security_protocol.tls]
    if not listeners:
        return
    try:
        check_stores(config)
    except ConfigError as error:
        why = "The broker does not start with a store that it cannot use."
        yield problem(error.key, str(error), "Correct the key, or the file that it names.", why)
        return
    from cryptography import x509

    from kafkapy.security.ssl.settings import SslSettings
    from kafkapy.security.ssl.stores import load_keystore

    now = datetime.datetime.now(datetime.UTC)
    for endpoint in listeners:
        try:
            material = load_keystore(SslSettings.for_listener(config, endpoint.listener_name))
        except KafkaError:  # the file has changed since the check above
            continue
        if material is None:
            continue
        ends = min(x509.load_der_x509_certificate(each).not_valid_after_utc for each in material.chain)
        days = (ends - now).days
        found = f"the certificate of {endpoint.listener_name} is valid until {ends:%Y-%m-%d}"
        if ends <= now:
            why = "Clients refuse the broker; it reads a new file without a restart."
            yield problem(endpoint.connection_string, found, "Renew it (kafkapy certs renew, or your authority).", why)
        elif days < SOON_DAYS:
            why = f"Clients refuse the broker in {days} days; the broker reads a new file without a restart."
            yield warning(endpoint.connection_string, found, "Renew it (kafkapy certs renew, or your authority).", why)
        else:
            yield satisfied(endpoint.connection_string, found)
