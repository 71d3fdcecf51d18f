"""One log segment: the data file, its offset index and time index.

A reference count keeps the file open while a sendfile uses it, also after a delete or a roll. Files are opened at their
first use: `fd` is -1 until segment_open, which read_batches calls before it returns a segment. `fd` may become -1
again, under the log's mutex, while the log has the only reference (open_files.pxd).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.string cimport string

from kafkapy._speedups.base.posix cimport atomic_add
from kafkapy._speedups.base.send cimport Send
from kafkapy._speedups.log.index cimport OffsetIndexState, TimeIndexState, offset_index_bound
from kafkapy._speedups.records.file_records cimport BatchPosition, FileRecordsState, ScanStatus
from kafkapy._speedups.records.reservation cimport Reservation

cdef enum:
    NEWEST_NOT_KNOWN = -2

cdef cppclass SegmentState:
    int64_t references              # atomic; the last unref closes the files
    int64_t base_offset
    int fd                          # data file; sendfile and pread from any thread that holds a reference
    int64_t size                    # bytes of whole batches in the file; written under the log's mutex
    int64_t max_timestamp           # ms, -1 when empty; atomic: a truncation, which reads the file for it, writes it
                                    # without the mutex
    int64_t offset_of_max_timestamp
    int64_t newest_record           # atomic; max_timestamp without transaction markers; -1 none, NEWEST_NOT_KNOWN until
                                    # raw_batches.pyx has looked
    int64_t created_ms              # wall clock, for roll by time when the batches carry no timestamp
    int64_t first_batch_timestamp   # ms, -1 when empty or not read yet; roll by time counts from here
    int64_t bytes_since_index       # appended since the last index entry
    int64_t dense_from              # atomic; each batch from this position on has its own index entry
    bint index_full                 # an index has no room for one more entry, after the last append
    bint index_waits                # enough unwritten entries wait; the writing thread clears it
    int64_t slow                    # atomic; threads that hang in a read of it (base/blocking.pxd)
    int64_t roll_jitter_ms          # subtracted from segment.ms
    int64_t seen_size               # at the last search for idle files (open_files.pyx)
    Reservation reservation         # disk space ahead; of the thread that writes, truncates or seals
    int64_t seen_reserved           # the size at the last search for idle space, under the log's mutex
    int64_t detached                # atomic; 1: its path may be another segment's
    int64_t sealed                  # atomic; 1: no longer active and its indexes cut to size
    FileRecordsState* records
    OffsetIndexState* offset_index
    TimeIndexState* time_index
    string path                     # of the data file; empty when the backend has no path (memory)

cdef inline void segment_ref(SegmentState* s) noexcept nogil:
    atomic_add(&s.references, 1)


cdef inline void segment_unref(SegmentState* s) noexcept nogil:
    if s != NULL and atomic_add(&s.references, -1) == 0:
        segment_free(s)


# Frees a segment after its last reference.
cdef void segment_free(SegmentState* s) noexcept nogil
# Appends a region of the segment's open file to a reply, which takes over the caller's reference.
cdef void segment_send(Send* send, SegmentState* s, int64_t position, int64_t length) noexcept nogil
# A segment over an open file (fd >= 0, taken over), or over a file that is opened by path later (fd -1). `stem` is the
# path of its files without suffix ("" for the memory backend).
cdef SegmentState* segment_new(int64_t base_offset, int fd, const string& path, const string& stem, int64_t index_bytes,
                               bint sealed, int64_t created_ms) noexcept nogil
# Gives a prepared segment, which no other thread knows yet, its base offset and the stem of its name.
cdef void segment_name(SegmentState* s, int64_t base_offset, const string& stem) noexcept nogil
# The descriptor, or -errno.
cdef inline int segment_open(SegmentState* s) noexcept nogil:
    return s.fd if s.fd >= 0 else segment_open_file(s)


cdef int segment_open_file(SegmentState* s) noexcept nogil
# The same for a reader: -EMFILE when the open segment files are at their limit and all in use.
cdef inline int segment_open_to_read(SegmentState* s) noexcept nogil:
    return s.fd if s.fd >= 0 else segment_open_file_to_read(s)


cdef int segment_open_file_to_read(SegmentState* s) noexcept nogil
# Writes to the open file and the indexes, one thread at a time, without the log's mutex. 0 or an errno; an error leaves
# both unchanged. segment_grow makes the bytes visible to readers. Several batches of v2 get the index entries that they
# would get one by one.
cdef int segment_write(SegmentState* s, const uint8_t* data, int64_t size, int64_t last_offset, int64_t max_timestamp,
                       int64_t offset_of_max_timestamp, int32_t index_interval_bytes) noexcept nogil
# Makes written bytes visible. Under the log's mutex, after segment_write.
cdef void segment_grow(SegmentState* s, int64_t size, int64_t max_timestamp,
                       int64_t offset_of_max_timestamp) noexcept nogil
# Writes index entries when enough wait. After an append, without the log's mutex.
cdef void segment_after_append(SegmentState* s) noexcept nogil
# The batch that holds `offset`, or the first one behind it, below `limit` bytes. Without the log's mutex.
cdef ScanStatus segment_find(SegmentState* s, int64_t offset, int64_t limit, BatchPosition* out) noexcept nogil
# Whether the index alone gives the batch's place, and a size of at most `most` bytes: then no data is read.
cdef bint segment_find_dense(SegmentState* s, int64_t offset, int64_t limit, int64_t most,
                             int64_t* position) noexcept nogil
# An upper bound of the offsets below `position`: of an index entry there or behind, or -1.
cdef inline int64_t segment_offset_bound(SegmentState* s, int64_t position) noexcept nogil:
    return offset_index_bound(s.offset_index, position)


# The first batch of records below `limit` bytes with a max timestamp >= timestamp and a last offset >= start_offset.
cdef ScanStatus segment_find_timestamp(SegmentState* s, int64_t timestamp, int64_t start_offset, int64_t limit,
                                       BatchPosition* out) noexcept nogil
# The reason to roll before `size` more bytes up to `last_offset` with that max timestamp, or 0.
cdef int segment_should_roll(SegmentState* s, int64_t size, int64_t last_offset, int64_t max_timestamp, int64_t now_ms,
                             int64_t segment_bytes, int64_t segment_ms) noexcept nogil
# Cuts the file at a batch boundary and the indexes at the offset. 0 or an errno.
cdef int segment_truncate(SegmentState* s, int64_t offset, int64_t position) noexcept nogil
# Closes the segment for writing: last time index entry, indexes cut to size and synced. 0 or an errno. Without the
# log's mutex.
cdef int segment_seal(SegmentState* s, bint sync) noexcept nogil
# The last time index entry, indexes and file cut to size, but still open for writing (clean close).
cdef int segment_trim(SegmentState* s) noexcept nogil
# Gives back the disk space ahead. 0, or the errno of a broken disk; after others the file keeps the space. While nobody
# writes, without the log's mutex.
cdef int segment_release(SegmentState* s) noexcept nogil
# Detaches a segment that left its log, before its files are renamed or removed: its readers keep an open file, and it
# never touches files of a successor with the same name. Not under the log's mutex; `own`: the caller's references.
cdef void segment_detach(SegmentState* s, int64_t own) noexcept nogil
# Sets max_timestamp and offset_of_max_timestamp from the time index and the batches behind its last entry.
cdef void segment_read_max_timestamp(SegmentState* s) noexcept nogil
