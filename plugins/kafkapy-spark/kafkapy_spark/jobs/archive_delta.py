"""A Delta table as an archive, by the package deltalake: no jar.

Offsets are in the table's own transactions: each commit sets, for each partition, the version of an application
"<name>:<topic>:<partition>" to the offset that the table is at (Delta's `txn` actions, which checkpoints of the log
keep). Files and offsets are therefore committed by one atomic write of the log, and a run that has been overtaken by
another is refused by the versions. Files of a run that was killed are in the directory, are in no version of the table,
and go with the next vacuum.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from kafkapy.errors import IllegalArgumentError
from kafkapy.types import TopicPartition
from kafkapy_spark.jobs.archive_destination import Destination, OtherRunError, Position
from kafkapy_spark.jobs.archive_layout import Layout
from kafkapy_spark.jobs.archive_writer import ArchivedFile
from kafkapy_spark.offsets import PartitionOffsets

__all__ = ["DeltaArchive"]

_METADATA: Final = "kafkapy"
"""A key of the commit's information; what is there is good to know and not needed."""
_LOOK_BACK: Final = 20
"""Commits among which it is looked for."""


class DeltaArchive(Destination):
    """`partitions` are those that may be archived."""

    def __init__(
        self, uri: str, name: str, schema: pa.Schema, layout: Layout, partitions: Collection[TopicPartition]
    ) -> None:
        super().__init__()
        try:
            import deltalake
        except ImportError as error:
            raise IllegalArgumentError(
                f'Delta tables need the package deltalake: pip install "kafkapy-spark[delta]" ({error})'
            ) from None
        self._delta: Any = deltalake
        self._uri, self._app, self._layout = uri, name, layout
        self._partitions = partitions
        self._schema = pa.schema([*schema, *(pa.field(*column) for column in layout.columns.items())])
        self._at: PartitionOffsets = {}

    @property
    def root(self) -> str:
        """The table's directory."""
        return self._uri

    def position(self) -> Position:
        """Where the table is."""
        if not self._delta.DeltaTable.is_deltatable(self._uri):
            return Position()
        table = self._table()
        self._at = self._offsets(table)
        for commit in table.history(_LOOK_BACK):
            known = commit.get(_METADATA)
            if known is not None:
                known = json.loads(known) if isinstance(known, str) else known
                return Position(self._at, known["topicIds"], known["bytesPerRow"])
        return Position(self._at)

    def begin(self) -> None:
        """Makes the table unless it is there."""
        self._delta.DeltaTable.create(
            self._uri, self._schema, mode="ignore", partition_by=list(self._layout.columns) or None
        )

    def commit(self, files: Sequence[ArchivedFile], position: Position) -> None:
        """One version of the table. OtherRunError."""
        table = self._table()
        if self._offsets(table) != self._at:
            raise OtherRunError(self._uri)
        transactions = [
            self._delta.Transaction(self._app_id(partition), offset)
            for partition, offset in sorted(position.offsets.items())
            if offset != self._at.get(partition)
        ]
        about = json.dumps({"topicIds": position.topic_ids, "bytesPerRow": position.bytes_per_row})
        try:
            table.create_write_transaction(
                [self._add(file) for file in files],
                mode="append",
                schema=self._schema,
                partition_by=list(self._layout.columns) or None,
                commit_properties=self._delta.CommitProperties(
                    custom_metadata={_METADATA: about}, app_transactions=transactions
                ),
            )
        except self._delta.exceptions.CommitFailedError as error:
            if self._offsets(self._table()) != self._at:
                raise OtherRunError(self._uri) from error
            raise
        self._at = position.offsets

    def end(self) -> None:
        """Nothing is left to do."""

    def _table(self) -> Any:
        return self._delta.DeltaTable(self._uri)

    def _offsets(self, table: Any) -> PartitionOffsets:
        versions = {partition: table.transaction_version(self._app_id(partition)) for partition in self._partitions}
        return {partition: version for partition, version in versions.items() if version is not None}

    def _app_id(self, partition: TopicPartition) -> str:
        return f"{self._app}:{partition.topic}:{partition.partition}"

    def _add(self, file: ArchivedFile) -> Any:
        from deltalake.transaction import AddAction

        statistics = {
            "numRecords": file.rows,
            "minValues": {name: _text(low) for name, (low, _) in file.bounds.items()},
            "maxValues": {name: _text(high) for name, (_, high) in file.bounds.items()},
        }
        return AddAction(
            path=file.path,
            size=file.size,
            partition_values=dict(file.period.values),
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=json.dumps(statistics),
        )


def _text(value: Any) -> Any:
    """As in Delta's statistics: times in ms, which is what Kafka's are in."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(value, datetime) else value
