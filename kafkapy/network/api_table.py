"""Which requests come in at all: the table that the Processors check every request header against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkapy.protocol.registry import ApiKeys, api
from kafkapy.protocol.schema import VersionRange

ApiTableEntries = dict[int, tuple[int, int, int | None, bool]]
"""API key to (min version, max version, first flexible version or None, served by the data plane)."""

DATA_PLANE_APIS: Final = {
    ApiKeys.PRODUCE: VersionRange(0, 13),
    ApiKeys.FETCH: VersionRange(0, 18),
}
"""The versions of Produce and Fetch that the data plane decodes."""


def api_table(handlers: Mapping[int, VersionRange]) -> ApiTableEntries:
    """The table for these handlers' versions, with Produce and Fetch added as the data plane serves them. ValueError
    for an API key without messages."""
    table: ApiTableEntries = {}
    for key, versions in (dict(handlers) | dict(DATA_PLANE_APIS)).items():
        flexible = api(key).flexible
        first_flexible = flexible.low if flexible.low <= flexible.high else None
        table[int(key)] = (versions.low, versions.high, first_flexible, key in DATA_PLANE_APIS)
    return table
