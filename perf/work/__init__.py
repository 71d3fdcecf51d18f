"""The work that is measured, one module for each kind; `ALL` names them as the report does."""

from __future__ import annotations

from collections.abc import Callable

from work import access, cluster, coordinators, fetch, javatools, latency, partitions, produce, share, start, tls
from work.session import Session


def security(session: Session) -> None:
    """All cells of W9."""
    tls.tls(session)
    access.logins(session)
    access.acls(session)


ALL: dict[str, tuple[str, Callable[[Session], None]]] = {
    "W1": ("produce 1 KB records in batches", produce.batches),
    "W2": ("produce one 100-byte record a request", produce.requests),
    "W3": ("fetch, catch-up read from a warm page cache", fetch.catch_up),
    "W4": ("end-to-end latency with a tailing consumer", latency.end_to_end),
    "W5": ("many partitions", partitions.many),
    "W6": ("start and memory", start.start_and_memory),
    "W7": ("offset commits, transactions, joins of many members", coordinators.coordinators),
    "W9": ("security: TLS 1.3, logins by SCRAM, ACLs", security),
    "W10": ("three brokers: replicated produce, catch-up, failover, restarts", cluster.three_brokers),
    "W11": ("queues: members of a share group acquire and acknowledge", share.share_groups),
    "X": ("Apache Kafka's own perf tools, a cross-check", javatools.cross_check),
}
ELSEWHERE = {"W8": "30 minutes of mixed load: make soak (tests/perf/test_soak.py runs perf/work/soak.py)"}
