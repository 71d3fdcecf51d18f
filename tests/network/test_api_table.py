"""The table of versions is made from the registry."""

from __future__ import annotations

import pytest

from kafkapy.network.api_table import api_table
from kafkapy.protocol.schema import VersionRange


def test_flexible_versions_come_from_the_registry_and_the_data_plane_is_added():
    table = api_table({3: VersionRange(0, 13), 18: VersionRange(0, 4), 17: VersionRange(0, 1)})
    assert table == {
        3: (0, 13, 9, False),
        18: (0, 4, 3, False),
        17: (0, 1, None, False),
        0: (0, 13, 9, True),
        1: (0, 18, 12, True),
    }


def test_an_api_without_messages_is_refused():
    with pytest.raises(ValueError):
        api_table({99: VersionRange(0, 1)})
