"""Share consumers on a scripted cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from clients.share.share_cluster import ShareCluster

from kafkapy import KafkaShareConsumer


@pytest.fixture
def cluster() -> Iterator[ShareCluster]:
    with ShareCluster() as running:
        running.add_topic("jobs")
        yield running


@pytest.fixture
def consume(cluster: ShareCluster) -> Iterator[Callable[..., KafkaShareConsumer]]:
    """Makes consumers of the cluster's topic, which end with the test."""
    with ExitStack() as stack:

        def make(*topics: str, **keywords: Any) -> KafkaShareConsumer:
            wanted = {
                "bootstrap_servers": cluster.bootstrap,
                "group_id": "workers",
                "fetch_max_wait_ms": 50,
                "retry_backoff_ms": 20,
                "enable_metrics_push": False,
            }
            made = KafkaShareConsumer(*(topics or ("jobs",)), **(wanted | keywords))
            stack.callback(made.close, timeout_ms=5000)
            return made

        yield make
