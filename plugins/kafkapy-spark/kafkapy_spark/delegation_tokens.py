"""Delegation tokens: with the option delegationToken, tasks log in by a token, and the driver keeps credentials.

The driver's processes log in with the options kafka.sasl.*, create a token for themselves, and give its id and secret
to the tasks. A token is replaced after three quarters of its lifetime, as Spark does. Sources: KIP-48;
org.apache.spark.kafka010.KafkaTokenUtil. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkapy.config.admin import ADMIN
from kafkapy.errors import ConfigError, IllegalArgumentError
from kafkapy_spark.option_names import KafkaConfigs
from kafkapy_spark.option_values import boolean, option

if TYPE_CHECKING:
    from kafkapy.clients.admin.delegation_tokens import DelegationToken
    from kafkapy_spark.options import SourceOptions
    from kafkapy_spark.sink_options import SinkOptions

__all__ = ["DriverConfigs", "TokenOptions", "login_of_tasks", "sink_with_token"]

logger = logging.getLogger("kafkapy.spark")

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
RENEWAL_RATIO: Final = 0.75
"""Share of a token's lifetime after which there is a new one (spark.security.credentials.renewalRatio)."""
MAX_TOKENS: Final = 8
"""Kept in one process, whatever their configurations."""
_SASL: Final = "sasl."

_held: dict[str, _Held] = {}


@dataclass(frozen=True)
class TokenOptions:
    """How tasks log in by a token."""

    mechanism: str = MECHANISMS[0]

    @classmethod
    def parse(cls, options: Mapping[str, str], kafka: Mapping[str, str]) -> TokenOptions | None:
        """From options by lower-case names. None: tasks get the credentials. IllegalArgumentError."""
        mechanism = option(options, "delegationToken.mechanism", _mechanism, MECHANISMS[0])
        if not option(options, "delegationToken", boolean, False):
            return None
        if not kafka.get("security.protocol", "").upper().startswith("SASL_"):
            raise IllegalArgumentError(
                "The option delegationToken needs kafka.security.protocol to be SASL_SSL or SASL_PLAINTEXT: "
                "tasks log in with SCRAM"
            )
        return cls(mechanism)


def _mechanism(text: str) -> str:
    if text.upper() not in MECHANISMS:
        raise ValueError(f"must be {' or '.join(MECHANISMS)}")
    return text.upper()


class DriverConfigs(KafkaConfigs):
    """Keys of a Kafka client whose login stays in the driver: a pickled copy, which tasks get, has no sasl.* keys."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (KafkaConfigs, (without_login(self),))


def without_login(kafka: Mapping[str, str]) -> KafkaConfigs:
    """The keys without those of SASL."""
    return KafkaConfigs({name: value for name, value in kafka.items() if not name.startswith(_SASL)})


def login_of_tasks(options: SourceOptions) -> KafkaConfigs:
    """The keys of SASL that tasks of a read need beside its plan's; none where the plan has them. KafkaError."""
    return KafkaConfigs() if options.token is None else _login(options.kafka, options.token)


def sink_with_token(options: SinkOptions) -> SinkOptions:
    """The options of a write that logs in by a token, where that is asked for. KafkaError."""
    if options.token is None:
        return options
    kafka = KafkaConfigs({**without_login(options.kafka), **_login(options.kafka, options.token)})
    return dataclasses.replace(options, kafka=kafka, token=None)


# --- tokens -----------------------------------------------------------------------------------------------------------


@dataclass
class _Held:
    """A token of this process, and when there has to be another (monotonic seconds)."""

    token: DelegationToken
    until_s: float


def _login(kafka: Mapping[str, str], options: TokenOptions) -> KafkaConfigs:
    token = _token(kafka)
    secret = base64.b64encode(token.hmac).decode()
    return KafkaConfigs(
        {
            "sasl.mechanism": options.mechanism,
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{token.token_id}" password="{secret}" tokenauth="true";',
        }
    )


def _token(kafka: Mapping[str, str]) -> DelegationToken:
    """The process's token for these credentials; a new one when the last is not young any more. KafkaError."""
    keys = {name: value for name, value in kafka.items() if _is_key(name)}
    place = json.dumps([os.getpid(), keys], sort_keys=True)
    held = _held.pop(place, None)
    if held is None or time.monotonic() >= held.until_s:
        asked_s = time.monotonic()
        token = _created(keys)
        lifetime_s = (token.expiry_timestamp_ms - token.issue_timestamp_ms) / 1000
        held = _Held(token, asked_s + RENEWAL_RATIO * lifetime_s)
        logger.info("Tasks log in by delegation token %s of %s", token.token_id, token.owner)
    _held[place] = held
    while len(_held) > MAX_TOKENS:
        _held.pop(next(iter(_held)))
    return held.token


def _created(keys: Mapping[str, str]) -> DelegationToken:
    from kafkapy import KafkaAdminClient

    with KafkaAdminClient(dict(keys)) as admin:
        return admin.create_delegation_token()


def _is_key(name: str) -> bool:
    """Whether it is a key of an admin client too."""
    try:
        return ADMIN.key_of(name) is not None
    except ConfigError:
        return False
