"""A ShareFetch at one share partition: read the log, acquire records, keep the place of their batches."""

from libc.stdint cimport int64_t

from kafkapy._speedups.requests.data_plane cimport DataPlaneState
from kafkapy._speedups.requests.share.state cimport SharePart, ShareState

cdef enum FetchTry:
    TRY_NOTHING = 0                 # part.waits says whether more may come
    TRY_ACQUIRED = 1
    TRY_REFUSED = 2                 # part.error

# Acquires records of a partition, at most state.records_left of them and state.limit bytes of batches (or one larger
# first batch of the reply). With state.counts it only counts the readable bytes (part.readable).
cdef FetchTry share_try(DataPlaneState* plane, ShareState* state, SharePart* part) noexcept nogil
# Looks up the entry of a partition that this broker leads; False: the part is refused.
cdef bint share_look_up(DataPlaneState* plane, ShareState* state, SharePart* part, bint create) noexcept nogil
# Releases the segment.
cdef void share_read_release(SharePart* part) noexcept nogil
