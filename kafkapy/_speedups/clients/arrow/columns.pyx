"""ArrowColumns: fetched records as the buffers of Arrow columns, straight from the batches, without an object per
record.

Every buffer gets enough room before a batch is read (the batch's bytes bound its keys, values and headers), so the walk
over the records only writes. Rows lie in chunks of at most about 1 GiB a column: Arrow's binary columns count in int32.

    key, value          binary, null for a missing key or value
    headers             list of struct(key: string, value: binary or null). U+FFFD replaces bytes of a name that are not
                        UTF-8, as in ConsumerRecord.headers.
    topic               index into `topics`
    timestamp           int64, ms; null for message format v0, which has no timestamp (-1)
    timestamp_type      int8

Apache Spark's schema of a Kafka topic (spark=True) differs in three columns: headers are null for a record without
headers, timestamp is in µs (clamped to the first or last possible one), timestamp_type is int32.

The memory of freed tables is kept for the next one, up to 64 MiB in all: new pages cost more than writing to them.

FetchedPartition handles positions, control batches, aborted transactions and errors. An append may release the GIL
during the walk over batches; no other thread may use the partition or the columns meanwhile.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport INT64_MAX, INT64_MIN, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset

from kafkapy._speedups.base.wire cimport buffer_free, buffer_init, cursor_init, read_varint, take
from kafkapy._speedups.clients.consumer.fetched_batch cimport FETCHED_BAD_RECORDS
from kafkapy._speedups.records.record_batch cimport BATCH_OK, NO_TIMESTAMP, RecordView, record_read
from kafkapy._speedups.records.short_record cimport short_copy, short_record

cdef enum:
    DEFAULT_CHUNK_BYTES = 1 << 30
    MAX_CHUNK_BYTES = 1 << 30           # a batch of 256 MiB, with threefold room for names, stays below 2 GiB
    REPLACED_SIZE = 3                   # bytes of U+FFFD
    MIN_SPARE = 65536                   # malloc has smaller blocks at hand
    MAX_SPARE_TOTAL = 1 << 26
    SPARES = 4                          # of each kind of buffer
    MICROS = 1000                       # in a ms

COLUMN_NAMES = {
    "key": <int>COLUMN_KEY,
    "value": <int>COLUMN_VALUE,
    "headers": <int>COLUMN_HEADERS,
    "topic": <int>COLUMN_TOPIC,
    "partition": <int>COLUMN_PARTITION,
    "offset": <int>COLUMN_OFFSET,
    "timestamp": <int>COLUMN_TIMESTAMP,
    "timestamp_type": <int>COLUMN_TIMESTAMP_TYPE,
}


# The GIL guards these.
cdef ByteBuffer[COLUMN_BUFFERS][SPARES] spare
cdef int[COLUMN_BUFFERS] spare_count
cdef size_t spare_total = 0


# ---- buffers ---------------------------------------------------------------------------------------------------------


cdef bint reserve(ByteBuffer* buffer, size_t room) noexcept nogil:
    """Makes room behind the buffer's end; False when memory is out."""
    cdef size_t capacity = buffer.capacity
    cdef uint8_t* data
    if room <= capacity - buffer.size:
        return True
    capacity = max(2 * capacity, buffer.size + room)
    data = <uint8_t*>realloc(buffer.data, capacity)
    if data == NULL:
        return False
    buffer.data = data
    buffer.capacity = capacity
    return True


cdef bint reserve_bits(ByteBuffer* buffer, int64_t rows) noexcept nogil:
    """Makes bits for so many rows in all; the new bits are set."""
    cdef size_t size = <size_t>(rows + 7) // 8
    if size > buffer.size:
        if not reserve(buffer, size - buffer.size):
            return False
        memset(buffer.data + buffer.size, 0xFF, size - buffer.size)
        buffer.size = size
    return True


cdef bint reserve_ends(ByteBuffer* buffer, int64_t count) noexcept nogil:
    """Makes room for so many more ends, the leading 0 among them."""
    if not reserve(buffer, (count + 1) * sizeof(int32_t)):
        return False
    if buffer.size == 0:
        memset(buffer.data, 0, sizeof(int32_t))
        buffer.size = sizeof(int32_t)
    return True


cdef inline void clear_bit(ByteBuffer* buffer, int64_t row) noexcept nogil:
    buffer.data[row >> 3] &= <uint8_t>~(1 << (row & 7))


cdef inline void add_end(ByteBuffer* ends, size_t end) noexcept nogil:
    cdef int32_t value = <int32_t>end
    memcpy(ends.data + ends.size, &value, sizeof(int32_t))
    ends.size += sizeof(int32_t)


cdef inline void add_bytes(ByteBuffer* data, const uint8_t* at, int32_t size) noexcept nogil:
    if size > 0:
        memcpy(data.data + data.size, at, size)
        data.size += size


cdef struct Writer:
    # The bytes and ends of a binary column while rows are added.
    uint8_t* start
    uint8_t* at
    int32_t* ends


cdef inline Writer writer(const ByteBuffer* data, const ByteBuffer* ends) noexcept nogil:
    cdef Writer w
    w.start = data.data
    w.at = data.data + data.size
    w.ends = <int32_t*>(ends.data + ends.size)
    return w


cdef inline void write_bytes(Writer* w, const uint8_t* at, int32_t size) noexcept nogil:
    if size > 0:
        short_copy(w.at, at, size)
        w.at += size
    w.ends[0] = <int32_t>(w.at - w.start)
    w.ends += 1


cdef inline void written(const Writer* w, ByteBuffer* data, ByteBuffer* ends) noexcept nogil:
    data.size = w.at - w.start
    ends.size = <uint8_t*>w.ends - ends.data


cdef void add_int32s(ByteBuffer* data, int32_t value, int64_t count) noexcept nogil:
    cdef int32_t* out = <int32_t*>(data.data + data.size)
    cdef int64_t i
    for i in range(count):
        out[i] = value
    data.size += count * sizeof(int32_t)


# ---- names of headers ------------------------------------------------------------------------------------------------


cdef inline int32_t utf8_length(const uint8_t* at, int32_t left) noexcept nogil:
    """Bytes of the character that begins here, or minus the bytes to replace when they are no character: at least one,
    else the part that could have become a character, which Python replaces by one U+FFFD."""
    cdef uint8_t lead = at[0]
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xBF
    cdef int32_t length, i
    if lead < 0x80:
        return 1
    if lead < 0xC2 or lead > 0xF4:
        return -1
    if lead < 0xE0:
        length = 2
    elif lead < 0xF0:
        length = 3
        if lead == 0xE0:
            low = 0xA0
        elif lead == 0xED:
            high = 0x9F
    else:
        length = 4
        if lead == 0xF0:
            low = 0x90
        elif lead == 0xF4:
            high = 0x8F
    for i in range(1, length):
        if i >= left or at[i] < low or at[i] > high:
            return -i
        low = 0x80
        high = 0xBF
    return length


cdef void add_name(ByteBuffer* data, const uint8_t* at, int32_t size) noexcept nogil:
    cdef int32_t length
    while size > 0:
        length = utf8_length(at, size)
        if length > 0:
            memcpy(data.data + data.size, at, length)
            data.size += length
        else:
            memcpy(data.data + data.size, b"\xef\xbf\xbd", REPLACED_SIZE)
            data.size += REPLACED_SIZE
            length = -length
        at += length
        size -= length


cdef void add_headers(ColumnChunk* chunk, const uint8_t* headers, int64_t headers_size, int32_t count) noexcept nogil:
    """Adds the headers of a record. record_read has walked over them: every length is right."""
    cdef Cursor c
    cdef const uint8_t* at
    cdef int32_t i, size
    cursor_init(&c, headers, headers_size)
    for i in range(count):
        size = read_varint(&c)
        at = take(&c, size)
        add_name(&chunk.buffers[<int>NAME_DATA], at, size)
        add_end(&chunk.buffers[<int>NAME_ENDS], chunk.buffers[<int>NAME_DATA].size)
        size = read_varint(&c)
        if size >= 0:
            at = take(&c, size)
            add_bytes(&chunk.buffers[<int>HEADER_VALUE_DATA], at, size)
        else:
            clear_bit(&chunk.buffers[<int>HEADER_VALID], chunk.header_rows)
            chunk.header_nulls += 1
        add_end(&chunk.buffers[<int>HEADER_VALUE_ENDS], chunk.buffers[<int>HEADER_VALUE_DATA].size)
        chunk.header_rows += 1


cdef inline int64_t micros(int64_t ms) noexcept nogil:
    if -INT64_MAX // MICROS <= ms <= INT64_MAX // MICROS:
        return ms * MICROS
    return INT64_MAX if ms > 0 else INT64_MIN


# ---- the walk --------------------------------------------------------------------------------------------------------


cdef bint chunk_reserve(ColumnChunk* chunk, int wanted, int64_t batch_bytes, int64_t records) noexcept nogil:
    """Makes room for everything that a batch of so many bytes and records can add. False when memory is out."""
    cdef ByteBuffer* b = chunk.buffers
    cdef int64_t rows = chunk.rows + records
    cdef int64_t headers = batch_bytes // 2         # each takes two bytes at least
    if wanted & COLUMN_KEY and not (
        reserve_bits(&b[<int>KEY_VALID], rows)
        and reserve_ends(&b[<int>KEY_ENDS], records)
        and reserve(&b[<int>KEY_DATA], batch_bytes)
    ):
        return False
    if wanted & COLUMN_VALUE and not (
        reserve_bits(&b[<int>VALUE_VALID], rows)
        and reserve_ends(&b[<int>VALUE_ENDS], records)
        and reserve(&b[<int>VALUE_DATA], batch_bytes)
    ):
        return False
    if wanted & COLUMN_HEADERS and not (
        reserve_bits(&b[<int>HEADERS_VALID], rows)
        and reserve_ends(&b[<int>HEADER_ENDS], records)
        and reserve_ends(&b[<int>NAME_ENDS], headers)
        and reserve(&b[<int>NAME_DATA], REPLACED_SIZE * batch_bytes)
        and reserve_bits(&b[<int>HEADER_VALID], chunk.header_rows + headers)
        and reserve_ends(&b[<int>HEADER_VALUE_ENDS], headers)
        and reserve(&b[<int>HEADER_VALUE_DATA], batch_bytes)
    ):
        return False
    if wanted & COLUMN_TOPIC and not reserve(&b[<int>TOPIC_DATA], records * sizeof(int32_t)):
        return False
    if wanted & COLUMN_PARTITION and not reserve(&b[<int>PARTITION_DATA], records * sizeof(int32_t)):
        return False
    if wanted & COLUMN_OFFSET and not reserve(&b[<int>OFFSET_DATA], records * sizeof(int64_t)):
        return False
    if wanted & COLUMN_TIMESTAMP and not (
        reserve_bits(&b[<int>TIMESTAMP_VALID], rows) and reserve(&b[<int>TIMESTAMP_DATA], records * sizeof(int64_t))
    ):
        return False
    return not wanted & COLUMN_TIMESTAMP_TYPE or reserve(&b[<int>TYPE_DATA], records * sizeof(int32_t))


cdef int64_t chunk_walk(ColumnChunk* chunk, int wanted, const FetchedBatch* batch, Cursor* cursor, int32_t* left,
                        int64_t* next_offset, int64_t end_offset, int64_t max_records, int32_t topic, int32_t partition,
                        bint* good) noexcept nogil:
    """Adds records of the batch from next_offset on and below end_offset; returns how many. At the end, next_offset is
    the end and records may be left. `good` False: the record at the cursor is malformed.

    The loop works on copies of its moving values: a written byte might be anything, so the compiler would read all
    other fields again. No other function gets a pointer to `record` and `c`, so that they need not be in memory at all.
    """
    cdef RecordView record, long_record
    cdef ByteBuffer* b = chunk.buffers
    cdef Cursor c = cursor[0]
    cdef Cursor long_cursor
    cdef const uint8_t* before = c.p
    cdef Writer key = writer(&b[<int>KEY_DATA], &b[<int>KEY_ENDS])
    cdef Writer value = writer(&b[<int>VALUE_DATA], &b[<int>VALUE_ENDS])
    cdef int64_t* offsets = <int64_t*>(b[<int>OFFSET_DATA].data + b[<int>OFFSET_DATA].size)
    cdef int32_t* header_ends = <int32_t*>(b[<int>HEADER_ENDS].data + b[<int>HEADER_ENDS].size)
    cdef int64_t* timestamps = <int64_t*>(b[<int>TIMESTAMP_DATA].data + b[<int>TIMESTAMP_DATA].size)
    cdef int64_t base_offset = batch.base_offset
    cdef int64_t base_timestamp = batch.append_time if batch.has_append_time else batch.base_timestamp
    cdef int64_t timestamp_factor = 0 if batch.has_append_time else 1
    cdef int64_t next = next_offset[0]
    cdef int64_t row = chunk.rows
    cdef int64_t header_rows = chunk.header_rows
    cdef int64_t key_nulls = 0
    cdef int64_t value_nulls = 0
    cdef int64_t no_headers = 0
    cdef int64_t rows = 0
    cdef int64_t offset, timestamp
    cdef int32_t records = left[0]
    good[0] = True
    while records > 0 and rows < max_records:
        if not short_record(&c, &record):
            long_cursor = c
            if record_read(&long_cursor, &long_record) != BATCH_OK:
                good[0] = False
                break
            c = long_cursor
            record = long_record
        offset = base_offset + record.offset_delta
        if offset >= end_offset:
            next = max(next, end_offset)
            break
        before = c.p
        records -= 1
        if offset < next:
            continue
        next = offset + 1
        if wanted & COLUMN_VALUE:
            if record.value_size < 0:
                clear_bit(&b[<int>VALUE_VALID], row)
                value_nulls += 1
            write_bytes(&value, record.value, record.value_size)
        if wanted & COLUMN_KEY:
            if record.key_size < 0:
                clear_bit(&b[<int>KEY_VALID], row)
                key_nulls += 1
            write_bytes(&key, record.key, record.key_size)
        if wanted & COLUMN_OFFSET:
            offsets[rows] = offset
        if wanted & COLUMN_TIMESTAMP:
            timestamp = base_timestamp + timestamp_factor * record.timestamp_delta
            if timestamp == NO_TIMESTAMP:
                clear_bit(&b[<int>TIMESTAMP_VALID], row)
                chunk.timestamp_nulls += 1
            timestamps[rows] = micros(timestamp) if wanted & FOR_SPARK else timestamp
        if wanted & COLUMN_HEADERS:
            if record.header_count == 0:
                if wanted & FOR_SPARK:
                    clear_bit(&b[<int>HEADERS_VALID], row)
                    no_headers += 1
            else:
                add_headers(chunk, record.headers, record.headers_size, record.header_count)
                header_rows = chunk.header_rows
            header_ends[rows] = <int32_t>header_rows
        rows += 1
        row += 1
    c.p = before
    cursor[0] = c
    left[0] = records
    next_offset[0] = next
    chunk.rows = row
    chunk.key_nulls += key_nulls
    chunk.value_nulls += value_nulls
    chunk.no_headers += no_headers
    if wanted & COLUMN_VALUE:
        written(&value, &b[<int>VALUE_DATA], &b[<int>VALUE_ENDS])
    if wanted & COLUMN_KEY:
        written(&key, &b[<int>KEY_DATA], &b[<int>KEY_ENDS])
    if wanted & COLUMN_HEADERS:
        b[<int>HEADER_ENDS].size += rows * sizeof(int32_t)
    if wanted & COLUMN_OFFSET:
        b[<int>OFFSET_DATA].size += rows * sizeof(int64_t)
    if wanted & COLUMN_TIMESTAMP:
        b[<int>TIMESTAMP_DATA].size += rows * sizeof(int64_t)
    if wanted & COLUMN_TOPIC:
        add_int32s(&b[<int>TOPIC_DATA], topic, rows)
    if wanted & COLUMN_PARTITION:
        add_int32s(&b[<int>PARTITION_DATA], partition, rows)
    if wanted & COLUMN_TIMESTAMP_TYPE and wanted & FOR_SPARK:
        add_int32s(&b[<int>TYPE_DATA], batch.timestamp_type, rows)
    elif wanted & COLUMN_TIMESTAMP_TYPE:
        memset(b[<int>TYPE_DATA].data + b[<int>TYPE_DATA].size, <uint8_t>batch.timestamp_type, rows)
        b[<int>TYPE_DATA].size += rows
    return rows


cdef int64_t chunk_bytes_of(const ColumnChunk* chunk) noexcept nogil:
    cdef int64_t total = 0
    cdef int i
    for i in range(COLUMN_BUFFERS):
        total += chunk.buffers[i].size
    return total


# ---- for Python ------------------------------------------------------------------------------------------------------


cdef void give_back(ByteBuffer* buffer, int index) noexcept:
    """Keeps the memory for the next chunk, or frees it."""
    global spare_total
    if buffer.capacity < MIN_SPARE or spare_count[index] == SPARES or buffer.capacity > MAX_SPARE_TOTAL - spare_total:
        buffer_free(buffer)
        return
    spare_total += buffer.capacity
    buffer.size = 0
    spare[index][spare_count[index]] = buffer[0]
    spare_count[index] += 1
    buffer_init(buffer)


cdef void get_spare(ByteBuffer* buffer, int index) noexcept:
    """Makes an empty buffer, with the memory of an earlier buffer if there is one."""
    global spare_total
    buffer_init(buffer)
    if spare_count[index] > 0:
        spare_count[index] -= 1
        buffer[0] = spare[index][spare_count[index]]
        spare_total -= buffer.capacity


@cython.final
cdef class ColumnBuffer:
    def __cinit__(self):
        buffer_init(&self.buffer)

    def __dealloc__(self):
        give_back(&self.buffer, self.index)

    def __getbuffer__(self, Py_buffer* view, int flags):
        # The pointer is never NULL, also for no bytes.
        PyBuffer_FillInfo(view, self, self.buffer.data if self.buffer.data != NULL else <uint8_t*>b"", self.buffer.size,
                          1, flags)


cdef ColumnBuffer taken(ByteBuffer* buffers, int index):
    """Takes one of a chunk's buffers; returns unused memory if it is much."""
    cdef ByteBuffer* buffer = &buffers[index]
    cdef ColumnBuffer out = ColumnBuffer.__new__(ColumnBuffer)
    cdef uint8_t* data
    cdef size_t size = max(buffer.size, <size_t>1)
    if buffer.capacity > MIN_SPARE and buffer.capacity // 4 > size:
        data = <uint8_t*>realloc(buffer.data, size)
        if data != NULL:
            buffer.data = data
            buffer.capacity = size
    out.index = index
    out.buffer = buffer[0]
    buffer_init(buffer)
    return out


cdef class ArrowColumns:
    """Rows of these columns (a subset of COLUMN_NAMES); append() fills them, finish() hands them out once. ValueError
    for other names.

    `rows` and `bytes` measure the contents; `topics` are the names behind the topic column's indexes. spark: in the
    types of Apache Spark.
    """

    def __cinit__(self, columns, int64_t chunk_bytes=DEFAULT_CHUNK_BYTES, bint spark=False):
        self.chunks = new vector[ColumnChunk*]()
        self.topic_indexes = {}
        self.wanted = FOR_SPARK if spark else 0
        if not 0 < chunk_bytes <= MAX_CHUNK_BYTES:
            raise ValueError(f"chunks of {chunk_bytes} bytes are not between 1 and {MAX_CHUNK_BYTES}")
        self.chunk_bytes = chunk_bytes
        for name in columns:
            if name not in COLUMN_NAMES:
                raise ValueError(f"there is no column {name!r}; there are {', '.join(COLUMN_NAMES)}")
            self.wanted |= COLUMN_NAMES[name]

    def __dealloc__(self):
        if self.chunks != NULL:     # else the arguments were none
            self.drop_chunks()
        del self.chunks

    cdef void drop_chunks(self) noexcept:
        cdef size_t i
        cdef int k
        for i in range(self.chunks.size()):
            for k in range(COLUMN_BUFFERS):
                give_back(&self.chunks[0][i].buffers[k], k)
            del self.chunks[0][i]
        self.chunks.clear()

    @property
    def topics(self):
        """The topics in the order of their indexes."""
        return list(self.topic_indexes)

    cdef ColumnChunk* chunk_for(self, int64_t batch_bytes, int32_t records) except NULL:
        """Returns the chunk for a batch of so many bytes and records, with room for it."""
        cdef ColumnChunk* chunk
        cdef int i
        cdef bint full = True
        if self.chunks.size():
            chunk = self.chunks.back()
            full = chunk.rows > 0 and chunk_bytes_of(chunk) + batch_bytes > self.chunk_bytes
        if full:
            chunk = new ColumnChunk()
            for i in range(COLUMN_BUFFERS):
                get_spare(&chunk.buffers[i], i)
            chunk.rows = 0
            chunk.header_rows = 0
            chunk.no_headers = 0
            chunk.key_nulls = 0
            chunk.value_nulls = 0
            chunk.header_nulls = 0
            chunk.timestamp_nulls = 0
            self.chunks.push_back(chunk)
        if not chunk_reserve(chunk, self.wanted, batch_bytes, records):
            raise MemoryError(f"there is no memory for {records} more rows")
        return chunk

    cpdef int64_t append(self, FetchedPartition partition, int64_t max_records, bint release_gil=False,
                         int64_t end_offset=INT64_MAX, int64_t max_bytes=INT64_MAX) except -1:
        """Takes up to max_records of a started partition, all below end_offset, and returns how many. Takes fewer only
        at the end, once `bytes` has reached max_bytes, or before an error, which the next call raises (as
        FetchedPartition.take). MemoryError.

        partition.next_offset is end_offset or more once the partition has no record left below it.
        """
        cdef ColumnChunk* chunk
        cdef int64_t taken = 0
        cdef int32_t topic
        if partition.topic is None:
            raise ValueError("the partition has not been started")
        topic = self.topic_indexes.setdefault(partition.topic, len(self.topic_indexes))
        while taken < max_records and partition.next_offset < end_offset and self.bytes < max_bytes:
            if not partition.entered:
                try:
                    if not partition.enter_batch():
                        break
                except Exception:
                    if taken:
                        break
                    raise
            chunk = self.chunk_for(partition.batch.size, partition.left)
            if release_gil:
                with nogil:
                    taken += self.walk(partition, chunk, topic, max_records - taken, end_offset, max_bytes)
            else:
                taken += self.walk(partition, chunk, topic, max_records - taken, end_offset, max_bytes)
        return taken

    cdef int64_t walk(self, FetchedPartition partition, ColumnChunk* chunk, int32_t topic, int64_t max_records,
                      int64_t end_offset, int64_t max_bytes) noexcept nogil:
        """Adds records of the entered batch, for which the chunk has room, and of the batches behind it while these fit
        into the chunk and take no Python object. Returns how many.

        The loop does nothing else between two batches: work there costs more than its instructions, because the CPU
        asks for no memory of the next copies meanwhile.
        """
        cdef int64_t taken = 0
        cdef int64_t size = chunk_bytes_of(chunk)
        cdef int64_t others = self.bytes - size
        cdef bint good
        while True:
            taken += chunk_walk(chunk, self.wanted, partition.batch, &partition.cursor, &partition.left,
                                &partition.next_offset, end_offset, max_records - taken, topic,
                                partition.data.partition, &good)
            size = chunk_bytes_of(chunk)
            if not good:
                partition.batch.state = FETCHED_BAD_RECORDS
                partition.entered = False
                break
            if partition.left > 0:
                break
            partition.end_batch()
            if (taken == max_records or partition.next_offset >= end_offset or others + size >= max_bytes
                    or not partition.step_in() or size + partition.batch.size > self.chunk_bytes
                    or not chunk_reserve(chunk, self.wanted, partition.batch.size, partition.left)):
                break
        self.rows += taken
        self.bytes = others + size
        return taken

    def finish(self):
        """Hands out the collected rows and empties the object (`topics` stay): for each chunk (rows, {column:
        buffers}).

        key, value: (null count, valid, ends, data); headers: (null count, valid, ends, how many, name ends, name data,
        null count of values, valid ones, value ends, value data); timestamp: (null count, valid, data); the other
        columns their data. `valid` is None for a column without nulls.
        """
        cdef list out = []
        cdef ColumnChunk* chunk
        cdef size_t i
        for i in range(self.chunks.size()):
            chunk = self.chunks[0][i]
            if chunk.rows:
                out.append((chunk.rows, self.columns_of(chunk)))
        self.drop_chunks()
        self.rows = 0
        self.bytes = 0
        return out

    cdef dict columns_of(self, ColumnChunk* chunk):
        cdef dict out = {}
        cdef ByteBuffer* b = chunk.buffers
        if self.wanted & COLUMN_KEY:
            out["key"] = (
                chunk.key_nulls,
                taken(b, KEY_VALID) if chunk.key_nulls else None,
                taken(b, KEY_ENDS),
                taken(b, KEY_DATA),
            )
        if self.wanted & COLUMN_VALUE:
            out["value"] = (
                chunk.value_nulls,
                taken(b, VALUE_VALID) if chunk.value_nulls else None,
                taken(b, VALUE_ENDS),
                taken(b, VALUE_DATA),
            )
        if self.wanted & COLUMN_HEADERS:
            out["headers"] = (
                chunk.no_headers if self.wanted & FOR_SPARK else 0,
                taken(b, HEADERS_VALID) if chunk.no_headers and self.wanted & FOR_SPARK else None,
                taken(b, HEADER_ENDS),
                chunk.header_rows,
                taken(b, NAME_ENDS),
                taken(b, NAME_DATA),
                chunk.header_nulls,
                taken(b, HEADER_VALID) if chunk.header_nulls else None,
                taken(b, HEADER_VALUE_ENDS),
                taken(b, HEADER_VALUE_DATA),
            )
        if self.wanted & COLUMN_TOPIC:
            out["topic"] = taken(b, TOPIC_DATA)
        if self.wanted & COLUMN_PARTITION:
            out["partition"] = taken(b, PARTITION_DATA)
        if self.wanted & COLUMN_OFFSET:
            out["offset"] = taken(b, OFFSET_DATA)
        if self.wanted & COLUMN_TIMESTAMP:
            out["timestamp"] = (
                chunk.timestamp_nulls,
                taken(b, TIMESTAMP_VALID) if chunk.timestamp_nulls else None,
                taken(b, TIMESTAMP_DATA),
            )
        if self.wanted & COLUMN_TIMESTAMP_TYPE:
            out["timestamp_type"] = taken(b, TYPE_DATA)
        return out
