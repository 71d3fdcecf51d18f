"""The table of APIs that come in; headers themselves are in tests/network/test_framing.py."""

from __future__ import annotations

import pytest

from kafkapy._speedups.requests.request_header import ApiTable


def test_tables_that_make_no_sense_are_refused():
    ApiTable({0: (3, 13, 9, True), 127: (0, 0, None, False)})
    for bad in (
        {128: (0, 1, None, False)},
        {-1: (0, 1, None, False)},
        {3: (2, 1, None, False)},
        {3: (-1, 1, None, False)},
    ):
        with pytest.raises(ValueError):
            ApiTable(bad)
    with pytest.raises(ValueError, match="not one that the data plane serves"):
        ApiTable({3: (0, 12, 9, True)})
