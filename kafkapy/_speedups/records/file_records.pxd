"""The data file of a segment: one pwrite writes whole batches, pread reads them, header walks find them.

The file is a sequence of batches (record_batch.pxd) without gaps. Segments that Kafka wrote before 0.11 hold messages
of format v0 and v1 instead (kafkapy/records/legacy.py): a walk returns each message as a batch of one offset, the
offset of the last record inside. A failed append is cut off again, so a reader below the segment's size never meets
half a batch.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.string cimport string

from kafkapy._speedups.records.record_batch cimport CONTROL_FLAG, MAGIC_V2, BatchHeader

cdef enum:
    SCAN_CHUNK = 4096               # bytes per read of a header walk

cdef cppclass FileRecordsState:
    string path                     # empty for a backend without paths (memory), whose fd is open from the start
    int64_t fd                      # atomic; -1 until first used

cdef struct OpenFiles:              # the process's open data files of segments, those with a path
    int64_t count                   # atomic, as the others
    int64_t limit                   # 0: none
    int64_t slack
    void (*make_room)() noexcept nogil      # closes idle files; NULL until log/open_files.pyx is imported

cdef struct BatchPosition:
    int64_t position                # of the batch's first byte in the file
    int64_t base_offset
    int64_t last_offset
    int64_t size                    # bytes
    int64_t max_timestamp

cdef enum ScanStatus:
    SCAN_FOUND = 0
    SCAN_END = 1                    # no such batch below the limit
    SCAN_CORRUPT = 2                # no batch stands at `position`
    SCAN_ERROR = 3                  # read error; errno is in `error`

cdef struct BatchScan:
    # A walk over the headers of a file. Set up by scan_start, moved by scan_next.
    int fd
    int64_t position                # of the next header
    int64_t limit
    int error
    int64_t chunk_start
    int64_t chunk_size
    BatchHeader header              # of the batch that scan_next found
    int64_t at                      # its position
    uint8_t chunk[4096]

cdef FileRecordsState* file_records_new(int fd, const string& path) noexcept nogil
cdef void file_records_free(FileRecordsState* records) noexcept nogil
# The open descriptor, or -errno. Opens the file on first use; any thread, not under the log's mutex the first time.
cdef int64_t file_records_open(FileRecordsState* records) noexcept nogil
# The same for a reader: -EMFILE when the open files are at their limit and half of the slack, and all are in use.
cdef int64_t file_records_open_to_read(FileRecordsState* records) noexcept nogil
# Takes the open descriptor out of the record; the caller closes it and counts that.
cdef int file_records_take(FileRecordsState* records) noexcept nogil
cdef void segment_file_closed() noexcept nogil
cdef OpenFiles* open_files() noexcept nogil
# open(2). Without free descriptors it closes idle segment files and tries once more. The descriptor, or -errno.
cdef int open_file(const char* path, int flags, int mode) noexcept nogil
# Writes at `position`. 0, or an errno; on an error the file keeps its length.
cdef int file_append(int fd, const uint8_t* data, int64_t size, int64_t position) noexcept nogil
cdef int file_truncate(int fd, int64_t size) noexcept nogil
cdef int file_sync(int fd) noexcept nogil
# fsync of a file or directory by name; a missing one counts as synced. 0 or an errno.
cdef int path_sync(const string& path) noexcept nogil
cdef int64_t file_size(int fd) noexcept nogil

# Whether the CRC-32 of a whole message (v0, v1) of `size` bytes is right.
cdef bint legacy_check_crc(const uint8_t* message, int64_t size) noexcept nogil

cdef void scan_start(BatchScan* scan, int fd, int64_t position, int64_t limit) noexcept nogil
cdef ScanStatus scan_next(BatchScan* scan) noexcept nogil
# The batch at `position`; reads only its header.
cdef ScanStatus batch_at(int fd, int64_t position, int64_t limit, BatchPosition* out) noexcept nogil
# The first batch at or behind `position`, below `limit`, whose last offset is `offset` or higher.
cdef ScanStatus scan_for_offset(int fd, int64_t position, int64_t limit, int64_t offset,
                                BatchPosition* out) noexcept nogil
# Whether a batch holds records: a control batch does not.
cdef inline bint holds_records(const BatchHeader* header) noexcept nogil:
    return header.magic < MAGIC_V2 or not header.attributes & CONTROL_FLAG


# The first batch of records at or behind `position` whose max timestamp is `timestamp` or higher and whose last offset
# is at least `offset`.
cdef ScanStatus scan_for_timestamp(int fd, int64_t position, int64_t limit, int64_t timestamp, int64_t offset,
                                   BatchPosition* out) noexcept nogil
