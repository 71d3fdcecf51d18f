"""Reading and writing a segment's data file (see file_records.pxd)."""

from libc.errno cimport EINTR, EIO, EMFILE, ENFILE, ENOENT, ENOSPC, errno
from libc.stdint cimport int64_t, uint8_t
from libcpp.string cimport string
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, O_RDWR, open as posix_open
from posix.unistd cimport close, fsync, ftruncate

from kafkapy._speedups.base.posix cimport atomic_add, atomic_load, file_read
from kafkapy._speedups.base.wire cimport load_int64, load_uint32
from kafkapy._speedups.records.message_set cimport crc32
from kafkapy._speedups.records.moved_directories cimport open_in_moved
from kafkapy._speedups.records.record_batch cimport (
    BATCH_BAD_MAGIC,
    BATCH_HEADER_SIZE,
    BATCH_OK,
    LEGACY_MIN_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    BatchHeader,
    BatchStatus,
    batch_header_parse,
)

cdef enum:
    LEGACY_CRC_AT = LOG_OVERHEAD                # covers what follows it
    LEGACY_TIMESTAMP_AT = MAGIC_AT + 1 + 1      # v1: behind magic and attributes
    LEGACY_V1_MIN_SIZE = LEGACY_MIN_SIZE + 8    # by the length field
    SMALLEST_ENTRY = LOG_OVERHEAD + LEGACY_MIN_SIZE
    SMALLEST_V1_ENTRY = LOG_OVERHEAD + LEGACY_V1_MIN_SIZE

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int fd, const void* data, size_t size, int64_t position)
    ssize_t pread(int fd, void* data, size_t size, int64_t position)
    int fdatasync(int fd)

cdef extern from "<sys/stat.h>" nogil:
    """
    #include <sys/stat.h>
    static inline int64_t kp_file_size(int fd) { struct stat s; return fstat(fd, &s) ? -errno : (int64_t)s.st_size; }
    """
    int64_t kp_file_size(int fd)

cdef extern from * nogil:
    """
    static inline int kp_publish_fd(int64_t* at, int64_t fd) {
        int64_t closed = -1;
        return __atomic_compare_exchange_n(at, &closed, fd, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    static inline int64_t kp_load_fd(int64_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
    """
    bint publish_fd "kp_publish_fd"(int64_t* at, int64_t fd)
    int64_t load_fd "kp_load_fd"(int64_t* at)


cdef OpenFiles files
files.count = 0
files.limit = 0
files.slack = 0
files.make_room = NULL


cdef OpenFiles* open_files() noexcept nogil:
    return &files


cdef void segment_file_closed() noexcept nogil:
    atomic_add(&files.count, -1)


cdef int open_file(const char* path, int flags, int mode) noexcept nogil:
    cdef int fd = posix_open(path, flags, mode)
    if fd < 0 and (errno == EMFILE or errno == ENFILE) and files.make_room != NULL:
        files.make_room()
        fd = posix_open(path, flags, mode)
    if fd >= 0 or errno != ENOENT:
        return fd if fd >= 0 else -errno
    fd = open_in_moved(path, flags, mode)
    if (fd == -EMFILE or fd == -ENFILE) and files.make_room != NULL:
        files.make_room()
        fd = open_in_moved(path, flags, mode)
    if fd == -ENOENT:
        # The directory may have its old name again.
        fd = posix_open(path, flags, mode)
        return fd if fd >= 0 else -errno
    return fd


cdef bint is_full(int64_t slack) noexcept nogil:
    cdef int64_t limit = atomic_load(&files.limit)
    return limit > 0 and atomic_load(&files.count) >= limit + slack


cdef FileRecordsState* file_records_new(int fd, const string& path) noexcept nogil:
    cdef FileRecordsState* records = new FileRecordsState()
    records.fd = fd
    records.path = path
    if fd >= 0 and not path.empty():
        if is_full(0) and files.make_room != NULL:
            files.make_room()
        atomic_add(&files.count, 1)
    return records


cdef void file_records_free(FileRecordsState* records) noexcept nogil:
    if records != NULL:
        if records.fd >= 0:
            close(<int>records.fd)
            if not records.path.empty():
                segment_file_closed()
        del records


cdef int file_records_take(FileRecordsState* records) noexcept nogil:
    cdef int fd = <int>records.fd
    records.fd = -1
    return fd


cdef int64_t file_records_open(FileRecordsState* records) noexcept nogil:
    return open_within(records, atomic_load(&files.slack))


cdef int64_t file_records_open_to_read(FileRecordsState* records) noexcept nogil:
    return open_within(records, atomic_load(&files.slack) // 2)


cdef int64_t open_within(FileRecordsState* records, int64_t slack) noexcept nogil:
    cdef int64_t fd = load_fd(&records.fd)
    if fd >= 0:
        return fd
    if is_full(0) and files.make_room != NULL:
        files.make_room()
    if is_full(slack):
        return -EMFILE
    fd = open_file(records.path.c_str(), O_RDWR | O_CLOEXEC, 0)
    if fd < 0:
        # A segment that leaves its log is opened for its readers, some of which may just have met the path's end.
        return fd if load_fd(&records.fd) < 0 else load_fd(&records.fd)
    # Two threads may both have opened the file; the second closes its descriptor.
    if publish_fd(&records.fd, fd):
        atomic_add(&files.count, 1)
    else:
        close(<int>fd)
    return load_fd(&records.fd)


cdef int file_append(int fd, const uint8_t* data, int64_t size, int64_t position) noexcept nogil:
    cdef int64_t done = 0
    cdef ssize_t n
    cdef int failure
    while done < size:
        n = pwrite(fd, data + done, <size_t>(size - done), position + done)
        if n > 0:
            done += n
        elif n < 0 and errno == EINTR:
            continue
        else:
            failure = errno if n < 0 else ENOSPC
            # Cut off what was written. When even that fails the bytes stay, but behind the segment's size, where nobody
            # reads.
            ftruncate(fd, position)
            return failure if failure else EIO
    return 0


cdef int file_truncate(int fd, int64_t size) noexcept nogil:
    while ftruncate(fd, size) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef int file_sync(int fd) noexcept nogil:
    while fdatasync(fd) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef int path_sync(const string& path) noexcept nogil:
    cdef int fd = open_file(path.c_str(), O_RDONLY | O_CLOEXEC, 0)
    cdef int failure = 0
    if fd < 0:
        return -fd if fd != -ENOENT else 0
    while fsync(fd) != 0:
        if errno != EINTR:
            failure = errno
            break
    close(fd)
    return failure


cdef int64_t file_size(int fd) noexcept nogil:
    return kp_file_size(fd)


cdef void scan_start(BatchScan* scan, int fd, int64_t position, int64_t limit) noexcept nogil:
    scan.fd = fd
    scan.position = position
    scan.limit = limit
    scan.error = 0
    scan.chunk_start = 0
    scan.chunk_size = 0
    scan.at = position


cdef bint legacy_header(const uint8_t* data, BatchHeader* header) noexcept nogil:
    """Completes the header that batch_header_parse gives for a message of format v0 or v1; false when it is none. Reads
    SMALLEST_ENTRY bytes, and 8 more of a message long enough for v1."""
    if header.magic == 1:
        if header.size < SMALLEST_V1_ENTRY:
            return False
        header.max_timestamp = load_int64(data + LEGACY_TIMESTAMP_AT)
    elif header.magic == 0:
        header.max_timestamp = -1
    else:
        return False
    header.base_timestamp = header.max_timestamp
    header.leader_epoch = -1
    header.crc = load_uint32(data + LEGACY_CRC_AT)
    header.producer_id = -1
    header.producer_epoch = -1
    header.base_sequence = -1
    return header.base_offset >= 0


cdef bint legacy_check_crc(const uint8_t* message, int64_t size) noexcept nogil:
    return (size >= SMALLEST_ENTRY
            and crc32(message + <int>MAGIC_AT, size - MAGIC_AT) == load_uint32(message + <int>LEGACY_CRC_AT))


cdef ScanStatus scan_next(BatchScan* scan) noexcept nogil:
    """Moves to the next header. SCAN_CORRUPT also when the batch reaches beyond the limit (a torn tail)."""
    cdef int64_t wanted, got
    cdef BatchStatus status
    cdef int64_t into, needed
    scan.at = scan.position
    if scan.position >= scan.limit:
        return SCAN_END
    if scan.limit - scan.position < SMALLEST_ENTRY:
        return SCAN_CORRUPT
    needed = scan.limit - scan.position
    if needed > BATCH_HEADER_SIZE:
        needed = BATCH_HEADER_SIZE
    into = scan.position - scan.chunk_start
    if into < 0 or into + needed > scan.chunk_size:
        wanted = scan.limit - scan.position
        if wanted > SCAN_CHUNK:
            wanted = SCAN_CHUNK
        got = file_read(scan.fd, scan.chunk, wanted, scan.position)
        if got < 0:
            scan.error = <int>-got
            scan.chunk_size = 0
            return SCAN_ERROR
        scan.chunk_start = scan.position
        scan.chunk_size = got
        into = 0
        if got < needed:
            return SCAN_CORRUPT
    # `available` is what the file holds, not the chunk: only the header is read, which is there when that is at least
    # as long.
    status = batch_header_parse(scan.chunk + into, scan.limit - scan.position, &scan.header)
    if status == BATCH_BAD_MAGIC and legacy_header(scan.chunk + into, &scan.header):
        status = BATCH_OK
    if status != BATCH_OK:
        return SCAN_CORRUPT
    if scan.header.size > scan.limit - scan.position or scan.header.last_offset_delta < 0:
        return SCAN_CORRUPT
    scan.position += scan.header.size
    return SCAN_FOUND


cdef void fill_position(const BatchScan* scan, BatchPosition* out) noexcept nogil:
    out.position = scan.at
    out.base_offset = scan.header.base_offset
    out.last_offset = scan.header.base_offset + scan.header.last_offset_delta
    out.size = scan.header.size
    out.max_timestamp = scan.header.max_timestamp


cdef ScanStatus batch_at(int fd, int64_t position, int64_t limit, BatchPosition* out) noexcept nogil:
    cdef BatchScan scan
    cdef ScanStatus status
    scan_start(&scan, fd, position, limit)
    scan.chunk_start = position
    # After a failed read scan_next reads again and reports the error.
    scan.chunk_size = max(file_read(fd, scan.chunk, min(limit - position, <int64_t>BATCH_HEADER_SIZE), position),
                          <int64_t>0)
    status = scan_next(&scan)
    if status == SCAN_FOUND:
        fill_position(&scan, out)
    return status


cdef ScanStatus scan_for_offset(int fd, int64_t position, int64_t limit, int64_t offset,
                                BatchPosition* out) noexcept nogil:
    cdef BatchScan scan
    cdef ScanStatus status
    scan_start(&scan, fd, position, limit)
    while True:
        status = scan_next(&scan)
        if status != SCAN_FOUND:
            return status
        if scan.header.base_offset + scan.header.last_offset_delta >= offset:
            fill_position(&scan, out)
            return SCAN_FOUND


cdef ScanStatus scan_for_timestamp(int fd, int64_t position, int64_t limit, int64_t timestamp, int64_t offset,
                                   BatchPosition* out) noexcept nogil:
    cdef BatchScan scan
    cdef ScanStatus status
    scan_start(&scan, fd, position, limit)
    while True:
        status = scan_next(&scan)
        if status != SCAN_FOUND:
            return status
        if (scan.header.max_timestamp >= timestamp and scan.header.base_offset + scan.header.last_offset_delta >= offset
                and holds_records(&scan.header)):
            fill_position(&scan, out)
            return SCAN_FOUND


def walk_batches(int fd, int64_t position, int64_t limit):
    """(base offset, last offset, position, size in bytes, max timestamp in ms) of each batch in a file, and where the
    walk ended.

    Returns the list and one of "end", "corrupt" or "error"; for tests and tools, not for the data plane."""
    cdef BatchScan scan
    cdef ScanStatus status
    cdef BatchPosition at
    found = []
    with nogil:
        scan_start(&scan, fd, position, limit)
    while True:
        with nogil:
            status = scan_next(&scan)
        if status != SCAN_FOUND:
            return found, {SCAN_END: "end", SCAN_CORRUPT: "corrupt", SCAN_ERROR: "error"}[status]
        fill_position(&scan, &at)
        found.append((at.base_offset, at.last_offset, at.position, at.size, at.max_timestamp))


def append_bytes(int fd, bytes data, int64_t position):
    """Writes all of data at the position. OSError on a failure; the file then ends at the position."""
    cdef const uint8_t* start = data
    cdef int64_t size = len(data)
    cdef int failure
    with nogil:
        failure = file_append(fd, start, size, position)
    if failure:
        raise OSError(failure, "append failed")
