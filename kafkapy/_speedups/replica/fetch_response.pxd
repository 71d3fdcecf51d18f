"""The response to a follower's Fetch, read piece by piece while it arrives (see fetch_response.pyx for its format)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libcpp.string cimport string

cdef enum:
    OLDEST_FETCH = 4                # record batches (KIP-98)
    NEWEST_FETCH = 17

cdef enum ReaderStage:
    STAGE_HEADER = 0
    STAGE_TOPIC = 1
    STAGE_PARTITION = 2
    STAGE_TOPIC_END = 3
    STAGE_END = 4
    STAGE_DONE = 5

cdef enum ReadStatus:
    READ_PARTITION = 0              # `out` is filled; its records lie in the caller's bytes
    READ_MORE = 1                   # call again with at least `need` bytes
    READ_DONE = 2
    READ_MALFORMED = 3

cdef struct FetchedData:
    int32_t partition
    int16_t error_code
    int64_t high_watermark
    int64_t log_start_offset        # -1 before version 5
    int32_t diverging_epoch         # both -1: the logs do not diverge
    int64_t diverging_end_offset
    bint diverges
    uint8_t* records
    int64_t size

cdef cppclass FetchResponseReader:
    int version
    int64_t max_records             # bytes of the records of one partition
    int stage                       # ReaderStage
    bint broken
    int32_t topics_left
    int32_t partitions_left
    int64_t need
    int64_t records                 # size of the records of the partition being read
    # Of the response, once the header is read (stage > STAGE_HEADER).
    int32_t correlation_id
    int32_t throttle_ms
    int16_t error_code
    int32_t session_id
    # Of the current topic: the name up to version 12, then the id.
    string topic
    string topic_id

cdef void reader_init(FetchResponseReader* r, int version, int64_t max_records) noexcept nogil
# The next partition in data[0:size]; `left` more bytes of the frame are still to come. `used` is the number of bytes
# that need not be passed again; with READ_PARTITION the records lie below it.
cdef ReadStatus reader_next(FetchResponseReader* r, uint8_t* data, int64_t size, int64_t left, int64_t* used,
                            FetchedData* out) noexcept nogil
