"""What the quotas accept as limits; how they act is in tests/network/test_connections.py."""

from __future__ import annotations

import pytest

from kafkapy._speedups.network.connection_quotas import ConnectionQuotas


def test_listeners_are_checked():
    quotas = ConnectionQuotas(2, 1)
    quotas.set_listener_limits(1, 5, 2.5)
    assert quotas.listener_count(1) == 0 and quotas.count == 0
    for index in (-1, 2):
        with pytest.raises(IndexError):
            quotas.set_listener_limits(index, 5)
        with pytest.raises(IndexError):
            quotas.listener_count(index)
    with pytest.raises(ValueError):
        ConnectionQuotas(0)
    with pytest.raises(ValueError):
        ConnectionQuotas(2, 2)
