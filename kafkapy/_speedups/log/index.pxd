"""The offset index and the time index of a segment, in Kafka's file formats (OffsetIndex and TimeIndex).

    offset index, 8 bytes an entry:  int32 offset - base offset | int32 position in the data file
    time index, 12 bytes an entry:   int64 timestamp (ms)       | int32 offset - base offset

Entries ascend. The offset of an entry is the last offset of the batch at that position. The file of an active segment
is preallocated to segment.index.bytes; sealing cuts it to its entries.

The first lookup maps the file, and reads use that map. Writes do not: the first write to a page of a mapped hole makes
the file system allocate blocks inside the page fault, a millisecond on ext4, and that under the log's mutex. So new
entries wait in memory (`pending`), where lookups find them, and are written in bunches after the mutex is released.
With an empty path (memory backend) they stay in memory. Each index has its own mutex, because lookups run outside the
log's.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.string cimport string
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_t

cdef enum:
    OFFSET_ENTRY_SIZE = 8
    TIME_ENTRY_SIZE = 12

cdef struct IndexEntry:
    int64_t key                     # relative offset, or timestamp
    int32_t value                   # position, or relative offset

cdef cppclass IndexFile:
    pthread_mutex_t mutex
    string path
    int32_t entry_size
    uint8_t* map                    # NULL until needed
    int64_t map_size                # bytes
    int64_t entries                 # in the file
    int64_t capacity                # entries the file may hold
    bint sealed                     # no more appends: mapped read-only
    vector[IndexEntry] pending      # unwritten entries, behind those in the file
    IndexEntry last                 # of the newest entry; key -1 when empty or not read yet
    bint last_known
    bint touched                    # the file may differ from its `entries`
    bint preallocated               # the file is `capacity` long
    int64_t found_last              # number of the entry of the last look-up by offset: the next read wants this entry
                                    # or the one after it

cdef cppclass OffsetIndexState:
    int64_t base_offset
    IndexFile file

cdef cppclass TimeIndexState:
    int64_t base_offset
    IndexFile file

cdef OffsetIndexState* offset_index_new(int64_t base_offset, const string& path, int64_t max_bytes,
                                        bint sealed) noexcept nogil
cdef TimeIndexState* time_index_new(int64_t base_offset, const string& path, int64_t max_bytes,
                                    bint sealed) noexcept nogil
cdef void offset_index_free(OffsetIndexState* index) noexcept nogil
cdef void time_index_free(TimeIndexState* index) noexcept nogil

# Adds an entry in memory. 0, or -1 when the index is full (then a roll is due).
cdef int offset_index_append(OffsetIndexState* index, int64_t offset, int64_t position) noexcept nogil
# The same; drops an entry that is not above the last one, as Kafka's maybeAppend does. `force` ignores the limit.
cdef int time_index_append(TimeIndexState* index, int64_t timestamp, int64_t offset, bint force) noexcept nogil
# The position where a scan for `offset` starts. May map the file: not under the log's mutex.
cdef int64_t offset_index_lookup(OffsetIndexState* index, int64_t offset) noexcept nogil
# The same, and the positions of the next two entries; -1 for a missing entry.
cdef int64_t offset_index_bounds(OffsetIndexState* index, int64_t offset, int64_t* following,
                                 int64_t* second) noexcept nogil
# The offset of the first entry at or behind `position`, -1 when there is none.
cdef int64_t offset_index_bound(OffsetIndexState* index, int64_t position) noexcept nogil
# The offset of the last entry with a timestamp <= `timestamp`; the base offset without such an entry.
cdef int64_t time_index_lookup(TimeIndexState* index, int64_t timestamp) noexcept nogil
# The newest entry, false when empty.
cdef bint offset_index_last(OffsetIndexState* index, int64_t* offset, int64_t* position) noexcept nogil
cdef bint time_index_last(TimeIndexState* index, int64_t* timestamp, int64_t* offset) noexcept nogil
cdef bint offset_index_full(OffsetIndexState* index) noexcept nogil
cdef bint time_index_full(TimeIndexState* index) noexcept nogil
# Drops the entries at or above `offset`.
cdef void offset_index_truncate(OffsetIndexState* index, int64_t offset) noexcept nogil
cdef void time_index_truncate(TimeIndexState* index, int64_t offset) noexcept nogil
# System calls from here on: not under the log's mutex. 0 or an errno.
cdef int index_flush_pending(IndexFile* file) noexcept nogil      # writes the pending entries
cdef bint index_has_pending(IndexFile* file) noexcept nogil
cdef int index_trim(IndexFile* file, bint seal) noexcept nogil    # the same, and cuts the file to its entries
cdef void index_unseal(IndexFile* file) noexcept nogil           # open for appends again (truncation into a closed
                                                                 # segment)
cdef int index_sync(IndexFile* file) noexcept nogil
# Gives up the file, because its segment was removed and a new one may get the name: no later system call names the
# file.
cdef void index_detach(IndexFile* file) noexcept nogil
cdef void index_clear(IndexFile* file) noexcept nogil             # memory only; the file is rewritten by the next flush
                                                                  # or trim
# Reads the number of entries from the file. 0 when its shape and last entries are sound, -1 when it must be rebuilt, or
# an errno.
cdef int offset_index_check(OffsetIndexState* index, int64_t data_size) noexcept nogil
cdef int time_index_check(TimeIndexState* index, int64_t data_size) noexcept nogil
