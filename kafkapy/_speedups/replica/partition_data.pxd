"""What a follower does with one partition of a Fetch response (see partition_data.pyx)."""

from libc.stdint cimport int64_t

from kafkapy._speedups.replica.fetch_response cimport FetchedData
from kafkapy._speedups.replica.state cimport FetcherState, FetchPartition

# Takes the partition's data or error over.
cdef void take_data(FetcherState* f, FetchPartition* p, FetchedData* data, int64_t now_ns) noexcept nogil
# Posts an event about a partition.
cdef void tell(FetcherState* f, FetchPartition* p, int kind, int64_t argument, const char* text) noexcept nogil
