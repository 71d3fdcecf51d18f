"""One log segment: the data file, its offset index and time index. Reference counted, so that neither a delete nor a roll pulls a
file from under a sendfile that is on its way."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.string cimport string

from kafkapy._speedups.file_records cimport FileRecordsState
from kafkapy._speedups.index cimport OffsetIndexState, TimeIndexState

cdef cppclass SegmentState:
    int64_t references              # atomic; the last unref closes the files
    int64_t base_offset
    int fd                          # data file; sendfile and pread from any thread that holds a reference
    int64_t size                    # bytes of whole batches in the file; written under the log's mutex
    int64_t max_timestamp           # ms, -1 when empty
    int64_t offset_of_max_timestamp
    int64_t created_ms              # wall clock, for roll by time when the batches carry no timestamp
    int64_t first_batch_timestamp   # ms, -1 when empty; roll by time counts from here
    FileRecordsState* records
    OffsetIndexState* offset_index
    TimeIndexState* time_index
    string path                     # of the data file; empty when the backend has no path (memory)

cdef void segment_ref(SegmentState* s) noexcept nogil
cdef void segment_unref(SegmentState* s) noexcept nogil
