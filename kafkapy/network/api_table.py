"""The table of served APIs; Processors check every request header against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkapy._speedups.protocol.data_plane_versions import FETCH, PRODUCE, SHARE_ACKNOWLEDGE, SHARE_FETCH
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import VersionRange

ApiTableEntries = dict[int, tuple[int, int, int | None, bool]]
"""API key to (min version, max version, first flexible version or None, served by the data plane)."""


class ServedApi(NamedTuple):
    """The served versions of an API.

    `first_flexible` is the lowest version with flexible body and headers, None if there is none. It repeats the message
    class, which need not be imported for it.
    """

    low: int
    high: int
    first_flexible: int | None

    @property
    def versions(self) -> VersionRange:
        """From the first to the last."""
        return VersionRange(self.low, self.high)


DATA_PLANE_APIS: Final[Mapping[int, ServedApi]] = {
    ApiKeys.PRODUCE: ServedApi(*PRODUCE),
    ApiKeys.FETCH: ServedApi(*FETCH),
    ApiKeys.SHARE_FETCH: ServedApi(*SHARE_FETCH),
    ApiKeys.SHARE_ACKNOWLEDGE: ServedApi(*SHARE_ACKNOWLEDGE),
}
"""The versions of the requests that the data plane decodes."""


FIRST_IN_THE_DATA_PLANE: Final = frozenset({ApiKeys.OFFSET_COMMIT})
"""Requests of Python's handlers that the data plane serves where it can."""


def api_table(handlers: Mapping[int, ServedApi]) -> ApiTableEntries:
    """The table of these handlers' versions and of the data plane's APIs."""
    in_data_plane = DATA_PLANE_APIS.keys() | FIRST_IN_THE_DATA_PLANE
    return {
        int(key): (served.low, served.high, served.first_flexible, key in in_data_plane)
        for key, served in {**handlers, **DATA_PLANE_APIS}.items()
    }
