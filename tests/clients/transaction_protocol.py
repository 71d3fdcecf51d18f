"""Both protocols of transactions on one broker (KIP-890)."""

from __future__ import annotations

import pytest

from kafkapy.clients.network_client import NetworkClient


@pytest.fixture(params=[0, 2], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The transaction version that clients follow. 0: they take the broker for one that does not add partitions by
    itself."""
    if request.param == 0:
        monkeypatch.setattr(NetworkClient, "finalized_feature", lambda self, node_id, name: 0)
    return int(request.param)
