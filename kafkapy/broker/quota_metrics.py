"""The metrics of client quotas: rates, and mean throttle times of the last minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkapy.broker.quota_callback import QuotaType
from kafkapy.metadata.quota_entities import CLIENT_ID, USER

if TYPE_CHECKING:
    from kafkapy.broker.client_quotas import ClientQuotas
    from kafkapy.broker.metric_samples import Samples

__all__ = ["add_quotas"]

PREFIXES: Final = {
    QuotaType.PRODUCE: "kafka_server_produce",
    QuotaType.FETCH: "kafka_server_fetch",
    QuotaType.REQUEST: "kafka_server_request",
    QuotaType.CONTROLLER_MUTATION: "kafka_server_controllermutation",
}
RATES: Final = {
    QuotaType.PRODUCE: "byterate",
    QuotaType.FETCH: "byterate",
    QuotaType.REQUEST: "requesttime",
    QuotaType.CONTROLLER_MUTATION: "mutations",
}

MOST_ALWAYS: Final = 100
"""Clients that are shown beside any number of other series."""


def add_quotas(samples: Samples, quotas: ClientQuotas) -> None:
    """Add the samples of all clients that are measured. Any thread."""
    samples.add("kafka_server_request_exemptrequesttime", quotas.exempt_time)
    for number, reading in enumerate(quotas.readings()):
        # The newest are shown also where partitions have used up the limit.
        add = samples.add if number < MOST_ALWAYS else samples.add_bounded
        prefix, labels = PREFIXES[reading.quota_type], (reading.tags[USER], reading.tags[CLIENT_ID])
        add(f"{prefix}_{RATES[reading.quota_type]}", reading.rate, *labels)
        if reading.throttle_time_ms is not None:
            add(f"{prefix}_throttletime", reading.throttle_time_ms, *labels)
        if reading.tokens is not None:
            add(f"{prefix}_tokens", reading.tokens, *labels)
