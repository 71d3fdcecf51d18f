"""An Iceberg table as an archive, by the package pyiceberg: no jar.

Offsets are in the table's property kafkapy.archive.<name>, set by the commit that adds the files' snapshot, and in that
snapshot's summary. The property is what counts: snapshots expire. (A table that is rolled back to an older snapshot
keeps its offsets; set the property to what that snapshot's summary says to archive again what was taken back.) A run
that has been overtaken by another is refused: a commit is made on the table as it was looked at, and is not repeated on
another one without a look at its offsets. Files of a run that was killed are in the table's directory, are in no
snapshot, and go when orphan files are removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kafkapy.errors import IllegalArgumentError
from kafkapy_spark.jobs.archive_destination import Destination, OtherRunError, Position
from kafkapy_spark.jobs.archive_layout import Layout
from kafkapy_spark.jobs.archive_writer import STATISTICS, ArchivedFile
from kafkapy_spark.offsets import from_json, to_json

__all__ = ["IcebergArchive"]

COMMIT_ATTEMPTS: Final = 10
"""Where others change the table at the same time (compaction)."""


class IcebergArchive(Destination):
    """`catalog` is pyiceberg's name of it and its properties, "name" and others."""

    def __init__(
        self, identifier: str, name: str, schema: pa.Schema, layout: Layout, catalog: Mapping[str, str]
    ) -> None:
        super().__init__()
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise IllegalArgumentError(
                f'Iceberg tables need the package pyiceberg: pip install "kafkapy-spark[iceberg]" ({error})'
            ) from None
        properties = dict(catalog)
        self._catalog: Any = load_catalog(properties.pop("name", None), **properties)
        self._identifier, self._schema, self._layout = identifier, schema, layout
        self._key = f"kafkapy.archive.{name}"
        self._known: str | None = None
        self._root = ""

    @property
    def root(self) -> str:
        """The table's directory of data."""
        return self._root

    def position(self) -> Position:
        """Where the table is."""
        if not self._catalog.table_exists(self._identifier):
            return Position()
        self._known = self._state(self._catalog.load_table(self._identifier))
        if self._known is None:
            return Position()
        known = json.loads(self._known)
        return Position(from_json(known["offsets"]), known["topicIds"], known["bytesPerRow"])

    def begin(self) -> None:
        """Makes the table unless it is there. The namespace has to be there."""
        if not self._catalog.table_exists(self._identifier):
            self._create()
        self._root = f"{self._catalog.load_table(self._identifier).location().rstrip('/')}/data"

    def commit(self, files: Sequence[ArchivedFile], position: Position) -> None:
        """One snapshot of the table. Without files that is none, and where offsets are known already they stay: those
        that are between records are looked at again by the next run. OtherRunError."""
        from pyiceberg.exceptions import CommitFailedException

        if not files and self._known is not None:
            return
        offsets, topic_ids = to_json(position.offsets), position.topic_ids
        new = json.dumps({"offsets": offsets, "topicIds": topic_ids, "bytesPerRow": position.bytes_per_row})
        paths = [f"{self._root}/{file.path}" for file in files]
        for left in reversed(range(COMMIT_ATTEMPTS)):
            table = self._catalog.load_table(self._identifier)
            if self._state(table) != self._known:
                raise OtherRunError(self._identifier)
            try:
                self._commit_on(table, paths, new)
            except CommitFailedException:
                if not left:
                    raise
                continue
            self._known = new
            return

    def end(self) -> None:
        """Nothing is left to do."""

    def _commit_on(self, table: Any, paths: list[str], new: str) -> None:
        """On this version of the table or not at all: pyiceberg is told not to try it on a later one."""
        once = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": once})
        with table.transaction() as transaction:
            transaction.set_properties({self._key: new})
            if paths:
                transaction.add_files(paths, snapshot_properties={self._key: new}, check_duplicate_files=False)

    def _state(self, table: Any) -> str | None:
        """What the last commit of ours says."""
        found: str | None = table.properties.get(self._key)
        return found

    def _create(self) -> None:
        from pyiceberg.transforms import DayTransform, HourTransform

        # Only these columns have statistics; pyiceberg warns of others that should have some.
        bounded = {f"write.metadata.metrics.column.{name}": "full" for name in STATISTICS if name in self._schema.names}
        properties = {"write.metadata.metrics.default": "none", **bounded}
        with self._catalog.create_table_transaction(
            self._identifier, self._schema, properties=properties
        ) as transaction:
            if self._layout is not Layout.NONE:
                hourly = self._layout is Layout.HOURLY
                with transaction.update_spec() as spec:
                    spec.add_field("timestamp", HourTransform() if hourly else DayTransform())
