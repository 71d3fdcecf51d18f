"""Offset index and time index (see index.pxd for the formats and the locking)."""

from libc.errno cimport EINTR, EINVAL, ENOENT, ENOMEM, ENOSPC, errno
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libcpp.string cimport string
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_RDONLY, O_RDWR
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, mmap, munmap
from posix.unistd cimport close, ftruncate

from kafkapy._speedups.base.posix cimport (
    file_read,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.wire cimport load_int32, load_int64, store_int32, store_int64
from kafkapy._speedups.records.file_records cimport file_size, file_sync, open_file

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int fd, const void* data, size_t size, int64_t position)

cdef enum:
    FLUSH_ENTRIES = 64              # entries kept in memory before a write: 256 KiB of data at the default interval


cdef void setup_file(IndexFile* file, const string& path, int32_t entry_size, int64_t max_bytes,
                     bint sealed) noexcept nogil:
    pthread_mutex_init(&file.mutex, NULL)
    file.path = path
    file.entry_size = entry_size
    file.map = NULL
    file.map_size = 0
    file.entries = 0
    file.capacity = max_bytes // entry_size
    file.sealed = sealed
    file.last.key = -1
    file.last.value = 0
    file.last_known = True
    file.touched = False
    file.preallocated = False
    file.found_last = -1


cdef void unmap(IndexFile* file) noexcept nogil:
    if file.map != NULL:
        munmap(file.map, <size_t>file.map_size)
        file.map = NULL
        file.map_size = 0


cdef void get_entry(IndexFile* file, int64_t i, IndexEntry* out) noexcept nogil:
    """Returns entry i: the mapped entries come first, then the pending ones. The caller holds the mutex and has checked
    i."""
    if i >= file.entries:
        out[0] = file.pending[<size_t>(i - file.entries)]
    else:
        decode_entry(file.entry_size, file.map + i * file.entry_size, out)


cdef void decode_entry(int32_t entry_size, const uint8_t* at, IndexEntry* out) noexcept nogil:
    if entry_size == OFFSET_ENTRY_SIZE:
        out.key = load_int32(at)
        out.value = load_int32(at + 4)
    else:
        out.key = load_int64(at)
        out.value = load_int32(at + 8)


cdef void encode_entry(int32_t entry_size, uint8_t* at, const IndexEntry* entry) noexcept nogil:
    if entry_size == OFFSET_ENTRY_SIZE:
        store_int32(at, <int32_t>entry.key)
        store_int32(at + 4, entry.value)
    else:
        store_int64(at, entry.key)
        store_int32(at + 8, entry.value)


cdef int64_t total(IndexFile* file) noexcept nogil:
    return file.entries + <int64_t>file.pending.size()


cdef int map_file(IndexFile* file) noexcept nogil:
    """Maps the capacity of the file for reading (mutex held by the caller). 0 or an errno."""
    cdef int fd, failure = 0
    cdef int64_t wanted
    cdef void* at
    if file.map != NULL or file.path.empty() or file.entries == 0:
        return 0
    if file.sealed:
        fd = open_file(file.path.c_str(), O_RDONLY | O_CLOEXEC, 0)
    else:
        fd = open_file(file.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
    if fd < 0:
        return -fd
    if not file.sealed:
        failure = preallocate(file, fd)
    wanted = file.entries * file.entry_size
    if not file.sealed and wanted < file.capacity * file.entry_size:
        wanted = file.capacity * file.entry_size
    if failure == 0 and file_size(fd) < wanted:
        failure = EINVAL            # a read of a map behind the file's end raises SIGBUS
    if failure == 0:
        at = mmap(NULL, <size_t>wanted, PROT_READ, MAP_SHARED, fd, 0)
        if at == MAP_FAILED:
            failure = errno
        else:
            file.map = <uint8_t*>at
            file.map_size = wanted
    close(fd)
    return failure


cdef int preallocate(IndexFile* file, int fd) noexcept nogil:
    """Cuts away bytes that are no entry, and makes the rest of the capacity a hole that reads as zeros. 0 or an
    errno."""
    if file.preallocated:
        return 0
    if ftruncate(fd, file.entries * file.entry_size) != 0:
        return errno
    if file.capacity > file.entries and ftruncate(fd, file.capacity * file.entry_size) != 0:
        return errno
    file.preallocated = True
    file.touched = True
    return 0


cdef bint readable(IndexFile* file) noexcept nogil:
    """Whether the entries can be read; maps the file if needed. Mutex held."""
    if file.entries == 0:
        return not file.pending.empty()
    if file.map != NULL and file.entries * file.entry_size > file.map_size:
        unmap(file)
    return map_file(file) == 0 and file.map != NULL


cdef void learn_last(IndexFile* file) noexcept nogil:
    """Reads the newest entry; maps the file when only the file has it. Mutex held."""
    if file.last_known:
        return
    file.last.key = -1
    file.last.value = 0
    if total(file) > 0:
        if file.pending.empty() and not readable(file):
            return
        get_entry(file, total(file) - 1, &file.last)
    file.last_known = True


cdef int append_entry(IndexFile* file, int64_t key, int32_t value) noexcept nogil:
    cdef IndexEntry entry
    entry.key = key
    entry.value = value
    file.pending.push_back(entry)
    file.touched = True
    file.last = entry
    file.last_known = True
    return 0


cdef int64_t largest_not_above(IndexFile* file, int64_t key, int64_t guess) noexcept nogil:
    """Returns the number of the last entry whose key is <= key, -1 without one. Mutex held, file mapped when it has
    entries. The search tries `guess` first, which may be any number."""
    cdef int64_t low = 0, high = total(file) - 1, middle, found = -1
    cdef IndexEntry entry
    if low <= guess <= high:
        get_entry(file, guess, &entry)
        if entry.key <= key:
            found = guess
            low = guess + 1
            if low <= high:
                get_entry(file, low, &entry)
                if entry.key > key:
                    return found
        else:
            high = guess - 1
    while low <= high:
        middle = low + (high - low) // 2
        get_entry(file, middle, &entry)
        if entry.key <= key:
            found = middle
            low = middle + 1
        else:
            high = middle - 1
    return found


cdef OffsetIndexState* offset_index_new(int64_t base_offset, const string& path, int64_t max_bytes,
                                        bint sealed) noexcept nogil:
    cdef OffsetIndexState* index = new OffsetIndexState()
    index.base_offset = base_offset
    setup_file(&index.file, path, OFFSET_ENTRY_SIZE, max_bytes, sealed)
    return index


cdef TimeIndexState* time_index_new(int64_t base_offset, const string& path, int64_t max_bytes,
                                    bint sealed) noexcept nogil:
    cdef TimeIndexState* index = new TimeIndexState()
    index.base_offset = base_offset
    setup_file(&index.file, path, TIME_ENTRY_SIZE, max_bytes, sealed)
    return index


cdef void offset_index_free(OffsetIndexState* index) noexcept nogil:
    if index != NULL:
        unmap(&index.file)
        pthread_mutex_destroy(&index.file.mutex)
        del index


cdef void time_index_free(TimeIndexState* index) noexcept nogil:
    if index != NULL:
        unmap(&index.file)
        pthread_mutex_destroy(&index.file.mutex)
        del index


cdef int offset_index_append(OffsetIndexState* index, int64_t offset, int64_t position) noexcept nogil:
    cdef int64_t relative = offset - index.base_offset
    cdef int result = -1
    pthread_mutex_lock(&index.file.mutex)
    if total(&index.file) < index.file.capacity and 0 <= relative <= INT32_MAX and 0 <= position <= INT32_MAX:
        result = append_entry(&index.file, relative, <int32_t>position)
    pthread_mutex_unlock(&index.file.mutex)
    return result


cdef void drop_unreadable(IndexFile* file) noexcept nogil:
    """Drops all entries of an unreadable file, because the entries above a new one are unknown: an index without
    entries is sound, only slower. Mutex held."""
    keep_entries(file, 0)


cdef int time_index_append(TimeIndexState* index, int64_t timestamp, int64_t offset, bint force) noexcept nogil:
    cdef int64_t relative = offset - index.base_offset
    cdef int result = -1
    pthread_mutex_lock(&index.file.mutex)
    learn_last(&index.file)
    if not index.file.last_known:
        drop_unreadable(&index.file)
    if relative < 0 or relative > INT32_MAX:
        result = -1
    elif total(&index.file) > 0 and timestamp <= index.file.last.key:
        result = 0
    elif total(&index.file) == 0 and timestamp < 0:
        result = 0
    elif force or total(&index.file) < index.file.capacity:
        result = append_entry(&index.file, timestamp, <int32_t>relative)
    pthread_mutex_unlock(&index.file.mutex)
    return result


cdef int64_t offset_index_lookup(OffsetIndexState* index, int64_t offset) noexcept nogil:
    cdef int64_t following, second
    return offset_index_bounds(index, offset, &following, &second)


cdef int64_t offset_index_bounds(OffsetIndexState* index, int64_t offset, int64_t* following,
                                 int64_t* second) noexcept nogil:
    cdef int64_t found, position = 0
    cdef IndexEntry entry
    following[0] = -1
    second[0] = -1
    pthread_mutex_lock(&index.file.mutex)
    if readable(&index.file):
        found = largest_not_above(&index.file, offset - index.base_offset, index.file.found_last + 1)
        index.file.found_last = found
        if found >= 0:
            get_entry(&index.file, found, &entry)
            position = entry.value
        if found + 1 < total(&index.file):
            get_entry(&index.file, found + 1, &entry)
            following[0] = entry.value
        if found + 2 < total(&index.file):
            get_entry(&index.file, found + 2, &entry)
            second[0] = entry.value
    pthread_mutex_unlock(&index.file.mutex)
    return position if position >= 0 else 0


cdef int64_t offset_index_bound(OffsetIndexState* index, int64_t position) noexcept nogil:
    cdef int64_t low = 0, high, middle, offset = -1
    cdef IndexEntry entry
    pthread_mutex_lock(&index.file.mutex)
    if readable(&index.file):
        high = total(&index.file)
        while low < high:
            middle = low + (high - low) // 2
            get_entry(&index.file, middle, &entry)
            if entry.value < position:
                low = middle + 1
            else:
                high = middle
                offset = index.base_offset + entry.key
    pthread_mutex_unlock(&index.file.mutex)
    return offset


cdef int64_t time_index_lookup(TimeIndexState* index, int64_t timestamp) noexcept nogil:
    cdef int64_t found, offset = index.base_offset
    cdef IndexEntry entry
    pthread_mutex_lock(&index.file.mutex)
    if readable(&index.file):
        found = largest_not_above(&index.file, timestamp, -1)
        if found >= 0:
            get_entry(&index.file, found, &entry)
            offset = index.base_offset + entry.value
    pthread_mutex_unlock(&index.file.mutex)
    return offset


cdef bint offset_index_last(OffsetIndexState* index, int64_t* offset, int64_t* position) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&index.file.mutex)
    learn_last(&index.file)
    found = total(&index.file) > 0
    offset[0] = index.base_offset + (index.file.last.key if found else 0)
    position[0] = index.file.last.value if found else 0
    pthread_mutex_unlock(&index.file.mutex)
    return found


cdef bint time_index_last(TimeIndexState* index, int64_t* timestamp, int64_t* offset) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&index.file.mutex)
    learn_last(&index.file)
    found = total(&index.file) > 0
    timestamp[0] = index.file.last.key if found else -1
    offset[0] = index.base_offset + (index.file.last.value if found else 0)
    pthread_mutex_unlock(&index.file.mutex)
    return found


cdef bint offset_index_full(OffsetIndexState* index) noexcept nogil:
    cdef bint full
    pthread_mutex_lock(&index.file.mutex)
    full = total(&index.file) >= index.file.capacity
    pthread_mutex_unlock(&index.file.mutex)
    return full


cdef bint time_index_full(TimeIndexState* index) noexcept nogil:
    """Whether the index is full; one entry stays free for the entry of a roll."""
    cdef bint full
    pthread_mutex_lock(&index.file.mutex)
    full = total(&index.file) >= index.file.capacity - 1
    pthread_mutex_unlock(&index.file.mutex)
    return full


cdef void keep_entries(IndexFile* file, int64_t count) noexcept nogil:
    if count >= total(file):
        return
    if count <= file.entries:
        file.pending.clear()
        file.entries = count
    else:
        file.pending.resize(<size_t>(count - file.entries))
    file.touched = True
    file.last_known = False


cdef void offset_index_truncate(OffsetIndexState* index, int64_t offset) noexcept nogil:
    pthread_mutex_lock(&index.file.mutex)
    if readable(&index.file):
        keep_entries(&index.file, largest_not_above(&index.file, offset - index.base_offset - 1, -1) + 1)
    else:
        drop_unreadable(&index.file)
    pthread_mutex_unlock(&index.file.mutex)


cdef void time_index_truncate(TimeIndexState* index, int64_t offset) noexcept nogil:
    """Offsets ascend with the timestamps, so the search for the cut begins at the end."""
    cdef int64_t count
    cdef IndexEntry entry
    pthread_mutex_lock(&index.file.mutex)
    if readable(&index.file):
        count = total(&index.file)
        while count > 0:
            get_entry(&index.file, count - 1, &entry)
            if index.base_offset + entry.value < offset:
                break
            count -= 1
        keep_entries(&index.file, count)
    else:
        drop_unreadable(&index.file)
    pthread_mutex_unlock(&index.file.mutex)


cdef bint index_has_pending(IndexFile* file) noexcept nogil:
    cdef bint has
    pthread_mutex_lock(&file.mutex)
    has = <int64_t>file.pending.size() >= FLUSH_ENTRIES and not file.path.empty() and not file.sealed
    pthread_mutex_unlock(&file.mutex)
    return has


cdef int write_pending(IndexFile* file, bint exact) noexcept nogil:
    """Writes the pending entries behind the entries of the file. `exact`: the file then ends there (and must not be
    mapped); else it stays preallocated. 0 or an errno. Mutex held."""
    cdef int fd, failure = 0
    cdef size_t i, n = file.pending.size()
    cdef int64_t wanted = (file.entries + <int64_t>n) * file.entry_size
    cdef uint8_t* raw = NULL
    fd = open_file(file.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
    if fd < 0:
        return -fd
    if not exact:
        failure = preallocate(file, fd)
    if n and failure == 0:
        raw = <uint8_t*>malloc(n * file.entry_size)
        if raw == NULL:
            failure = ENOMEM
        else:
            for i in range(n):
                encode_entry(file.entry_size, raw + i * file.entry_size, &file.pending[i])
            failure = index_write(fd, raw, <int64_t>n * file.entry_size, file.entries * file.entry_size)
            free(raw)
    # A truncation costs a file system's transaction, also one to the size that the file has.
    if exact and failure == 0 and file_size(fd) != wanted and ftruncate(fd, wanted) != 0:
        failure = errno
    close(fd)
    if failure == 0:
        file.entries += <int64_t>n
        file.pending.clear()
        if exact:
            file.preallocated = False
    return failure


cdef int index_write(int fd, const uint8_t* raw, int64_t size, int64_t position) noexcept nogil:
    """Writes without a change of the file's length on failure: the map must stay valid."""
    cdef int64_t done = 0
    cdef ssize_t n
    while done < size:
        n = pwrite(fd, raw + done, <size_t>(size - done), position + done)
        if n > 0:
            done += n
        elif n == 0 or errno != EINTR:
            return errno if n < 0 else ENOSPC
    return 0


cdef int index_flush_pending(IndexFile* file) noexcept nogil:
    cdef int failure = 0
    pthread_mutex_lock(&file.mutex)
    if not file.path.empty() and not file.pending.empty() and not file.sealed:
        failure = write_pending(file, False)
    pthread_mutex_unlock(&file.mutex)
    return failure


cdef int index_trim(IndexFile* file, bint seal) noexcept nogil:
    cdef int failure = 0
    pthread_mutex_lock(&file.mutex)
    if not file.path.empty() and not file.sealed and file.touched:
        unmap(file)
        failure = write_pending(file, True)
        file.touched = failure != 0
    if failure == 0 and seal:
        unmap(file)
        file.sealed = True
    pthread_mutex_unlock(&file.mutex)
    return failure


cdef void index_unseal(IndexFile* file) noexcept nogil:
    pthread_mutex_lock(&file.mutex)
    if file.sealed:
        unmap(file)
        file.sealed = False
        file.touched = True
    pthread_mutex_unlock(&file.mutex)


cdef int index_sync(IndexFile* file) noexcept nogil:
    """Syncs the file, if it exists."""
    cdef int fd, failure
    cdef string path
    pthread_mutex_lock(&file.mutex)
    path = file.path
    pthread_mutex_unlock(&file.mutex)
    if path.empty():
        return 0
    fd = open_file(path.c_str(), O_RDWR | O_CLOEXEC, 0)
    if fd < 0:
        return 0 if fd == -ENOENT else -fd
    failure = file_sync(fd)
    close(fd)
    return failure


cdef void index_detach(IndexFile* file) noexcept nogil:
    pthread_mutex_lock(&file.mutex)
    file.path.clear()
    pthread_mutex_unlock(&file.mutex)


cdef void index_clear(IndexFile* file) noexcept nogil:
    pthread_mutex_lock(&file.mutex)
    unmap(file)
    file.entries = 0
    file.pending.clear()
    file.sealed = False
    file.preallocated = False
    file.touched = True
    file.last.key = -1
    file.last.value = 0
    file.last_known = True
    pthread_mutex_unlock(&file.mutex)


cdef int load_entries(IndexFile* file, int64_t data_size) noexcept nogil:
    """Reads the file's size and its last two entries without a map. 0; -1 when the entries are unsound; or an errno.
    Mutex held."""
    cdef int fd
    cdef int64_t size, at, got
    cdef uint8_t raw[24]
    cdef IndexEntry previous
    if file.path.empty() or file.map != NULL:
        return 0
    fd = open_file(file.path.c_str(), O_RDONLY | O_CLOEXEC, 0)
    if fd < 0:
        file.touched = True
        # The file is made at its first use, so an empty segment has none.
        return -fd if fd != -ENOENT else 0 if data_size == 0 else -1
    size = file_size(fd)
    file.entries = size // file.entry_size if size > 0 else 0
    if size <= 0 or size % file.entry_size:
        close(fd)
        return <int>-size if size < 0 else 0 if size == 0 else -1
    at = size - 2 * file.entry_size if file.entries > 1 else 0
    got = file_read(fd, raw, size - at, at)
    close(fd)
    if got != size - at:
        return -1
    decode_entry(file.entry_size, raw + (got - file.entry_size), &file.last)
    if file.last.key < 0 or file.last.value < 0 or data_size == 0:
        return -1
    if file.entry_size == OFFSET_ENTRY_SIZE and file.last.value >= data_size:
        return -1
    if file.entries > 1:
        # Zeros at the end (a file that no stop has cut) fail here too.
        decode_entry(file.entry_size, raw, &previous)
        if file.last.key <= previous.key or file.last.value < previous.value:
            return -1
    return 0


cdef int offset_index_check(OffsetIndexState* index, int64_t data_size) noexcept nogil:
    cdef int result
    pthread_mutex_lock(&index.file.mutex)
    result = load_entries(&index.file, data_size)
    pthread_mutex_unlock(&index.file.mutex)
    return result


cdef int time_index_check(TimeIndexState* index, int64_t data_size) noexcept nogil:
    cdef int result
    pthread_mutex_lock(&index.file.mutex)
    result = load_entries(&index.file, data_size)
    pthread_mutex_unlock(&index.file.mutex)
    return result
