"""Errors of exactly-once sinks. Each says what was not written, and the way out."""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy.errors import KafkaError
from kafkapy_spark.decisions import Decision, Handle, Past

__all__ = [
    "LostTransactionError",
    "MovedError",
    "RewoundError",
    "SinkError",
    "SupersededError",
    "UnknownOutcomeError",
]


class SinkError(KafkaError):
    """A batch cannot be written, or not yet; nothing is written twice or left out by that."""


class SupersededError(SinkError):
    """Another driver writes to the sink: this one decides nothing any more."""


class RewoundError(SinkError):
    """The sink has decided a batch of this number, and it does not have the same rows."""

    def __init__(self, sink: str, query: str, batch: int, past: Past, found: str) -> None:
        super().__init__(
            f"batch {batch} of {query} is not written: {found}. The sink {sink} has decided batches up to {past.batch} "
            "of it, so the checkpoint was restored from a backup or rewound, or the query gives other rows each time "
            "it runs. Choose: ignoreSinkState=true writes such batches, and records that they have in common with "
            "what is written already are there twice; ignoreSinkState=skip leaves such batches out, and records that "
            "only they have are lost"
        )


class MovedError(SinkError):
    """Another sink has decided batches of the query."""

    def __init__(self, sink: str, query: str, batch: int, other: str, past: Past) -> None:
        super().__init__(
            f"batch {batch} of {query} is not written: the sink {other} has decided batches up to {past.batch} of the "
            f"same query, and this is the sink {sink}: the checkpoint was moved, copied or is spelled in another way, "
            f"or the option topic was changed. Choose: transactionalIdPrefix={other} goes on with that sink; "
            "ignoreSinkState=true begins with this one, and a batch that the other has decided last may be there twice"
        )


class LostTransactionError(SinkError):
    """Transactions that were decided on are not there any more: records of these partitions are missing."""

    def __init__(self, sink: str, decision: Decision, lost: Sequence[Handle]) -> None:
        self.decision = decision
        self.lost = tuple(lost)
        super().__init__(
            f"batch {decision.batch} of {decision.query} was decided by the sink {sink}, but the transactions of its "
            f"partitions {_partitions(lost)} ({sum(each.rows for each in lost)} of {decision.rows} rows) were ended by "
            "the broker before they could be committed (transaction.timeout.ms). With the option "
            "onLostTransaction=replay these partitions are written again if the batch is; "
            "`kafkapy-spark txn commit --accept-loss` goes on without them."
        )


class UnknownOutcomeError(SinkError):
    """Nobody knows whether transactions that were decided on were committed."""

    def __init__(self, sink: str, decision: Decision, unknown: Sequence[Handle]) -> None:
        self.decision = decision
        self.unknown = tuple(unknown)
        topics = ", ".join(sorted({each.topic for each in unknown if each.topic is not None})) or "its topics"
        super().__init__(
            f"batch {decision.batch} of {decision.query} was decided by the sink {sink}, and it is not known whether "
            f"the transactions of its partitions {_partitions(unknown)} "
            f"({sum(each.rows for each in unknown)} of {decision.rows} rows) were committed: their transactional ids "
            f"have expired (transactional.id.expiration.ms), and the log of {topics} does not tell (retention and "
            "compaction take markers away, and it has to be readable: ACL Read). Nothing is written again. Look for "
            "the rows; `kafkapy-spark txn commit --accept-loss` goes on, and counts them as written."
        )


def _partitions(handles: Sequence[Handle]) -> str:
    return ", ".join(str(each.partition) for each in handles)
