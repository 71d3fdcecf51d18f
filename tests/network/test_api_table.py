"""The table of versions is what the handlers serve, with the data plane's added."""

from __future__ import annotations

from kafkapy.network.api_table import DATA_PLANE_APIS, ServedApi, api_table
from kafkapy.protocol.registry import ApiKeys


def test_the_data_plane_is_added():
    table = api_table({ApiKeys.METADATA: ServedApi(0, 13, 9), ApiKeys.SASL_HANDSHAKE: ServedApi(0, 1, None)})
    assert table == {
        3: (0, 13, 9, False),
        17: (0, 1, None, False),
        0: (0, 13, 9, True),
        1: (0, 18, 12, True),
        78: (1, 2, 0, True),
        79: (1, 2, 0, True),
    }


def test_the_data_plane_is_asked_first_for_commits():
    assert api_table({ApiKeys.OFFSET_COMMIT: ServedApi(0, 10, 8)})[8] == (0, 10, 8, True)


def test_the_versions_of_the_data_plane_are_those_of_its_messages():
    for key, served in DATA_PLANE_APIS.items():
        assert key.versions.low <= served.low <= served.high <= key.versions.high
        assert served.first_flexible == key.flexible.low
