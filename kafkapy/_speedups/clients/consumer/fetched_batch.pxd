"""One batch of a Fetch response, from fetched_batches.pyx or fetched_messages.pyx."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

cdef enum:
    NO_TIMESTAMP_TYPE = -1
    MAX_OPENED_BYTES = 268435456        # of one batch; as records/compression.py has it

cdef enum FetchedState:
    FETCHED_READY = 0
    FETCHED_CLOSED = 1                  # still compressed: decompressed when the consumer reaches it
    FETCHED_BAD_CRC = 2
    FETCHED_BAD_LENGTH = 3              # the bytes behind it cannot be read
    FETCHED_BAD_MAGIC = 4               # the same
    FETCHED_BAD_RECORDS = 5             # impossible counts or sizes
    FETCHED_BAD_CODEC = 6
    FETCHED_BAD_COMPRESSION = 7
    FETCHED_TOO_LARGE = 8               # decompresses to more than MAX_OPENED_BYTES
    FETCHED_NO_MEMORY = 9
    FETCHED_INCOMPLETE = 10             # bytes, but not one whole batch

cdef struct FetchedBatch:
    int64_t base_offset
    int64_t next_offset                 # behind the batch; base_offset when not known
    int64_t base_timestamp
    int64_t append_time                 # the timestamp of all records where has_append_time
    int64_t producer_id
    int32_t leader_epoch
    int32_t record_count
    int16_t attributes
    int8_t magic
    int8_t timestamp_type               # -1, 0, 1
    bint has_append_time
    FetchedState state
    const uint8_t* records              # of message format v2; in FETCHED_CLOSED compressed, or a whole message of v0
                                        # or v1
    int64_t size
    int32_t slab                        # of `records`; -1: they lie in the response

# Memory of records outside the response. The batches of a slab follow each other.
cdef struct Slab:
    uint8_t* data                       # malloc'ed; NULL after another owner has taken it over
    size_t size
    size_t capacity
