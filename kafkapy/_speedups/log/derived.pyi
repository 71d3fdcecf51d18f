"""Nothing here is for Python: PartitionLog has it as methods."""

from struct import Struct

ABORTED_ENTRY: Struct
NO_END: int
