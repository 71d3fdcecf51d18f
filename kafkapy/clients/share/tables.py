"""Tables of acquired records: the columns of a consumer's tables, and delivery_count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from kafkapy._speedups.clients.consumer.acquired_partition import AcquiredColumns
from kafkapy.clients.arrow.tables import COLUMNS, TableBuilder

__all__ = ["ShareTableBuilder"]

DELIVERY_COUNT: Final = "delivery_count"
SHARE_COLUMNS: Final = (*COLUMNS, DELIVERY_COUNT)


class ShareTableBuilder(TableBuilder):
    """As TableBuilder, for chunks of acquired records, which `acquired` takes."""

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self._names = SHARE_COLUMNS if columns is None else tuple(columns)
        if self._names.count(DELIVERY_COUNT) > 1:
            raise ValueError(f"column {DELIVERY_COUNT} occurs twice")
        others = [name for name in self._names if name != DELIVERY_COUNT]
        # A table needs some other column for its number of rows.
        super().__init__(others or (["offset"] if DELIVERY_COUNT in self._names else []))
        self.acquired = AcquiredColumns(self.columns)

    def table(self) -> pa.Table:
        """The collected rows; the builder is empty afterwards."""
        table = super().table()
        if DELIVERY_COUNT not in self._names:
            return table
        parts = [pa.repeat(pa.scalar(count, pa.int16()), rows) for rows, count in self.acquired.counts]
        field = pa.field(DELIVERY_COUNT, pa.int16(), nullable=False)
        return table.append_column(field, pa.chunked_array(parts, pa.int16())).select(list(self._names))
