"""The permissions that each served API needs, and its answers without them: a table of Apache Kafka's behaviour.

Each case sends one request. `needs` are the permissions, all of them; a need with several entries is met by any of
them. `denied` has the answer without the need at the same place, `allowed` the answer with all of them. Answers are
error codes in the order of the request, and where the error codes do not tell enough, what the client sees.
Source: section 4 of the reference on security, made from kafka.server.KafkaApis of 3.9 and 4.x; not this broker's code.
"""

from __future__ import annotations

from broker import acl_cases_cluster, acl_cases_controller, acl_cases_groups, acl_cases_share, acl_cases_topics
from broker.acl_case import CASES, Case, Permission, World

from kafkapy.protocol.registry import ApiKeys

__all__ = ["CASES", "NEED_NOTHING", "Case", "Permission", "World"]

SECTIONS = (acl_cases_topics, acl_cases_groups, acl_cases_share, acl_cases_cluster, acl_cases_controller)
"""Their import fills CASES, in this order."""

NEED_NOTHING = {
    ApiKeys.API_VERSIONS: "asked before authentication",
    ApiKeys.SASL_HANDSHAKE: "authentication itself",
    ApiKeys.SASL_AUTHENTICATE: "authentication itself",
    ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS: "a client may say how it is",
    ApiKeys.PUSH_TELEMETRY: "a client may say how it is",
    ApiKeys.RENEW_DELEGATION_TOKEN: "the token decides: its owner and its renewers renew it",
    ApiKeys.EXPIRE_DELEGATION_TOKEN: "the token decides: its owner and its renewers let it expire",
}
"""Served without a permission, and why."""
