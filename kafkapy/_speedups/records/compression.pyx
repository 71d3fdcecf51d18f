"""The codecs of record batches (see compression.pxd), as Kafka's clients frame them.

    gzip    RFC 1952; several members one after the other are read
    snappy  blocks in the frame of snappy-java ("xerial"): 8 bytes magic, int32 version, int32 oldest version, then per
            block int32 length + raw snappy block of at most 32 KiB. Other clients write one raw block without a frame,
            which is read too.
    lz4     LZ4 frame with independent blocks of at most 64 KiB and a header checksum only, as Kafka's Java reader
            requires. Any frame is read. The header checksum of message format v0 covers the frame's magic too:
            CODEC_LZ4_V0 writes that checksum and reads any.
    zstd    Zstandard frame

A thread-local struct keeps a thread's zstd, gzip and lz4 contexts and is freed with the thread; a context that grew
large (high levels, windows of long-range frames) is freed after the call.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy

from kafkapy._speedups.base.wire cimport buffer_free, buffer_init, load_int32, store_int32
from kafkapy._speedups.records.record_batch cimport CODEC_GZIP, CODEC_LZ4, CODEC_SNAPPY, CODEC_ZSTD

cdef extern from "lz4frame.h" nogil:
    """
    #include <stdlib.h>
    #include <string.h>
    #include <new>
    #include <snappy-c.h>
    #define ZLIB_CONST
    #include <zlib.h>
    #include <zstd.h>

    /* Above this a context is not kept for the next call. */
    static const size_t kp_context_keep = 16 << 20;

    struct KpCodecs {
        ZSTD_CCtx* zstd_out = nullptr;
        ZSTD_DCtx* zstd_in = nullptr;
        LZ4F_dctx* lz4_in = nullptr;
        z_stream gzip_out;
        z_stream gzip_in;
        int gzip_out_level = -2;        /* -2: not set up */
        bool gzip_in_ready = false;

        ~KpCodecs() {
            ZSTD_freeCCtx(zstd_out);
            ZSTD_freeDCtx(zstd_in);
            LZ4F_freeDecompressionContext(lz4_in);
            if (gzip_out_level != -2) deflateEnd(&gzip_out);
            if (gzip_in_ready) inflateEnd(&gzip_in);
        }
    };
    static thread_local KpCodecs kp_codecs;
    static void kp_codecs_begin(void) { __asm__ volatile("" : : "r"(&kp_codecs) : "memory"); }

    static ZSTD_CCtx* kp_zstd_out(void) {
        if (!kp_codecs.zstd_out) kp_codecs.zstd_out = ZSTD_createCCtx();
        return kp_codecs.zstd_out;
    }
    static void kp_zstd_out_done(void) {
        if (ZSTD_sizeof_CCtx(kp_codecs.zstd_out) > kp_context_keep) {
            ZSTD_freeCCtx(kp_codecs.zstd_out);
            kp_codecs.zstd_out = nullptr;
        }
    }
    static ZSTD_DCtx* kp_zstd_in(void) {
        if (!kp_codecs.zstd_in) kp_codecs.zstd_in = ZSTD_createDCtx();
        else ZSTD_DCtx_reset(kp_codecs.zstd_in, ZSTD_reset_session_only);
        return kp_codecs.zstd_in;
    }
    static void kp_zstd_in_done(void) {
        if (ZSTD_sizeof_DCtx(kp_codecs.zstd_in) > kp_context_keep) {
            ZSTD_freeDCtx(kp_codecs.zstd_in);
            kp_codecs.zstd_in = nullptr;
        }
    }
    static LZ4F_dctx* kp_lz4_in(void) {
        if (!kp_codecs.lz4_in) {
            if (LZ4F_isError(LZ4F_createDecompressionContext(&kp_codecs.lz4_in, LZ4F_VERSION)))
                kp_codecs.lz4_in = nullptr;
        } else {
            LZ4F_resetDecompressionContext(kp_codecs.lz4_in);
        }
        return kp_codecs.lz4_in;
    }
    /* A context that has met an error is not what it was, whatever its reset says. */
    static void kp_lz4_in_failed(void) {
        LZ4F_freeDecompressionContext(kp_codecs.lz4_in);
        kp_codecs.lz4_in = nullptr;
    }
    static z_stream* kp_gzip_out(int level) {
        z_stream* stream = &kp_codecs.gzip_out;
        if (kp_codecs.gzip_out_level == level) {
            deflateReset(stream);
            return stream;
        }
        if (kp_codecs.gzip_out_level != -2) deflateEnd(stream);
        kp_codecs.gzip_out_level = -2;
        memset(stream, 0, sizeof *stream);
        if (deflateInit2(stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return nullptr;
        kp_codecs.gzip_out_level = level;
        return stream;
    }
    static z_stream* kp_gzip_in(void) {
        z_stream* stream = &kp_codecs.gzip_in;
        if (kp_codecs.gzip_in_ready) {
            inflateReset(stream);
            return stream;
        }
        memset(stream, 0, sizeof *stream);
        if (inflateInit2(stream, 15 + 16) != Z_OK) return nullptr;
        kp_codecs.gzip_in_ready = true;
        return stream;
    }
    static int kp_snappy_compress(const uint8_t* data, size_t size, uint8_t* out, size_t* out_size) {
        try {
            return snappy_compress((const char*)data, size, (char*)out, out_size) == SNAPPY_OK ? 0 : -1;
        } catch (const std::bad_alloc&) {
            return -1;
        }
    }
    static int kp_snappy_uncompress(const uint8_t* data, size_t size, uint8_t* out, size_t* out_size) {
        return snappy_uncompress((const char*)data, size, (char*)out, out_size) == SNAPPY_OK ? 0 : -1;
    }
    static size_t kp_lz4_compress(void* out, size_t room, const void* data, size_t size, int level) {
        LZ4F_preferences_t preferences;
        memset(&preferences, 0, sizeof preferences);
        preferences.frameInfo.blockSizeID = LZ4F_max64KB;
        preferences.frameInfo.blockMode = LZ4F_blockIndependent;
        preferences.compressionLevel = level;
        return LZ4F_compressFrame(out, room, data, size, &preferences);
    }
    static size_t kp_lz4_bound(size_t size) {
        LZ4F_preferences_t preferences;
        memset(&preferences, 0, sizeof preferences);
        preferences.frameInfo.blockSizeID = LZ4F_max64KB;
        preferences.frameInfo.blockMode = LZ4F_blockIndependent;
        return LZ4F_compressFrameBound(size, &preferences);
    }
    """
    ctypedef struct LZ4F_dctx:
        pass
    unsigned LZ4F_isError(size_t code)
    size_t LZ4F_decompress(LZ4F_dctx* context, void* out, size_t* out_size, const void* data, size_t* size,
                           const void* options)
    LZ4F_dctx* lz4_in "kp_lz4_in"()
    void lz4_in_failed "kp_lz4_in_failed"()
    size_t lz4_compress "kp_lz4_compress"(void* out, size_t room, const void* data, size_t size, int level)
    size_t lz4_bound "kp_lz4_bound"(size_t size)

cdef extern from "zstd.h" nogil:
    ctypedef struct ZSTD_CCtx:
        pass
    ctypedef struct ZSTD_DCtx:
        pass
    ctypedef struct ZSTD_inBuffer:
        const void* src
        size_t size
        size_t pos
    ctypedef struct ZSTD_outBuffer:
        void* dst
        size_t size
        size_t pos
    unsigned ZSTD_isError(size_t code)
    size_t ZSTD_compressBound(size_t size)
    size_t ZSTD_compressCCtx(ZSTD_CCtx* context, void* out, size_t room, const void* data, size_t size, int level)
    size_t ZSTD_decompressStream(ZSTD_DCtx* context, ZSTD_outBuffer* out, ZSTD_inBuffer* data)
    unsigned long long ZSTD_getFrameContentSize(const void* data, size_t size)
    ZSTD_CCtx* zstd_out "kp_zstd_out"()
    void zstd_out_done "kp_zstd_out_done"()
    ZSTD_DCtx* zstd_in "kp_zstd_in"()
    void zstd_in_done "kp_zstd_in_done"()

cdef extern from "zlib.h" nogil:
    ctypedef struct z_stream:
        const unsigned char* next_in
        unsigned int avail_in
        unsigned char* next_out
        unsigned int avail_out
    int Z_OK, Z_STREAM_END, Z_BUF_ERROR, Z_MEM_ERROR, Z_FINISH, Z_NO_FLUSH
    int deflate(z_stream* stream, int flush)
    int inflate(z_stream* stream, int flush)
    int inflateReset(z_stream* stream)
    z_stream* gzip_out "kp_gzip_out"(int level)
    z_stream* gzip_in "kp_gzip_in"()

cdef extern from * nogil:
    void kp_codecs_begin()

cdef extern from "snappy-c.h" nogil:
    int SNAPPY_OK
    size_t snappy_max_compressed_length(size_t size)
    int snappy_uncompressed_length(const char* data, size_t size, size_t* result)
    int snappy_compress "kp_snappy_compress"(const uint8_t* data, size_t size, uint8_t* out, size_t* out_size)
    int snappy_uncompress "kp_snappy_uncompress"(const uint8_t* data, size_t size, uint8_t* out, size_t* out_size)

cdef enum:
    FIRST_ROOM = 65536              # for output, unless the input is larger
    MAX_ROOM = 1 << 30              # a step: zlib counts in 32 bits
    FIRST_RATIO = 4                 # expected output per input
    BELIEVED_RATIO = 16             # up to which a zstd frame's announced size is trusted
    GZIP_DEFAULT = 6
    GZIP_STEP = 16384
    LZ4_DEFAULT = 9                 # Kafka's level of lz4's fast compressor; other levels mean high compression
    LZ4_FAST = 0
    LZ4_HIGH_LOWEST = 3
    LZ4_HIGH_HIGHEST = 12
    LZ4_MAGIC_SIZE = 4
    LZ4_SIZE_FLAG = 0x08
    LZ4_DICTIONARY_FLAG = 0x01
    ZSTD_DEFAULT = 3
    ZSTD_LOWEST = -131072
    ZSTD_HIGHEST = 22
    SNAPPY_MAX_RATIO = 22           # the densest element copies 64 bytes and takes 3
    XERIAL_HEADER_SIZE = 16
    XERIAL_MAGIC_SIZE = 8
    XERIAL_BLOCK = 32768
    INT32_SIZE = 4

cdef const uint8_t* XERIAL_HEADER = <const uint8_t*>b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
cdef const uint8_t* LZ4_MAGIC = <const uint8_t*>b"\x04\x22\x4d\x18"

OK = <int>COMPRESSION_OK
CORRUPT = <int>COMPRESSION_CORRUPT
TOO_LARGE = <int>COMPRESSION_TOO_LARGE
NO_MEMORY = <int>COMPRESSION_NO_MEMORY
UNKNOWN_CODEC = <int>COMPRESSION_UNKNOWN_CODEC
DEFAULT_LEVEL = <int>COMPRESSION_DEFAULT_LEVEL
LZ4_V0 = <int>CODEC_LZ4_V0


cdef bint reserve(ByteBuffer* into, size_t room, size_t limit) noexcept nogil:
    """Makes room for `room` bytes behind the buffer's end, within `limit` for the whole buffer. False when memory is
    out."""
    cdef size_t wanted = into.size + min(room, limit - into.size)
    cdef size_t capacity
    cdef uint8_t* data
    if wanted <= into.capacity:
        return True
    capacity = max(wanted, min(2 * into.capacity, limit))
    data = <uint8_t*>realloc(into.data, capacity)
    if data == NULL:
        return False
    into.data = data
    into.capacity = capacity
    return True


# ---- compression -----------------------------------------------------------------------------------------------------


cdef void compression_thread_begin() noexcept nogil:
    kp_codecs_begin()


cdef int compress_into(int codec, int level, const uint8_t* data, int64_t size, ByteBuffer* into) noexcept nogil:
    cdef size_t start = into.size
    cdef int status
    if codec == CODEC_GZIP:
        status = gzip_compress(level, data, size, into)
    elif codec == CODEC_SNAPPY:
        status = xerial_compress(data, size, into)
    elif codec == CODEC_LZ4:
        status = lz4_compress_frame(level, data, size, into)
    elif codec == CODEC_ZSTD:
        status = zstd_compress(level, data, size, into)
    elif codec == CODEC_LZ4_V0:
        status = lz4_compress_frame(level, data, size, into)
        if status == COMPRESSION_OK:
            # Our frames have no size and no dictionary id: magic, two bytes, checksum.
            into.data[start + 6] = <uint8_t>(xxh32_short(into.data + start, 6) >> 8)
    else:
        status = COMPRESSION_UNKNOWN_CODEC
    if status != COMPRESSION_OK:
        into.size = start
    return status


cdef int gzip_compress(int level, const uint8_t* data, int64_t size, ByteBuffer* into) noexcept nogil:
    cdef z_stream* stream
    cdef size_t room
    cdef int code, flush
    if level < 1 or level > 9:
        level = 9 if level > 9 else GZIP_DEFAULT if level == COMPRESSION_DEFAULT_LEVEL or level == -1 else 1
    stream = gzip_out(level)
    if stream == NULL:
        return COMPRESSION_NO_MEMORY
    stream.avail_in = 0
    while True:
        if stream.avail_in == 0 and size > 0:
            stream.next_in = data
            stream.avail_in = <unsigned int>min(size, <int64_t>MAX_ROOM)
            data += stream.avail_in
            size -= stream.avail_in
        flush = Z_FINISH if size == 0 else Z_NO_FLUSH
        if not reserve(into, max(<size_t>stream.avail_in // FIRST_RATIO, <size_t>GZIP_STEP), <size_t>-1):
            return COMPRESSION_NO_MEMORY
        room = min(into.capacity - into.size, <size_t>MAX_ROOM)
        stream.next_out = into.data + into.size
        stream.avail_out = <unsigned int>room
        code = deflate(stream, flush)
        into.size += room - stream.avail_out
        if code == Z_STREAM_END:
            return COMPRESSION_OK


cdef int xerial_compress(const uint8_t* data, int64_t size, ByteBuffer* into) noexcept nogil:
    cdef int64_t at = 0
    cdef size_t length, block
    if not reserve(into, XERIAL_HEADER_SIZE, <size_t>-1):
        return COMPRESSION_NO_MEMORY
    memcpy(into.data + into.size, XERIAL_HEADER, XERIAL_HEADER_SIZE)
    into.size += XERIAL_HEADER_SIZE
    while at < size:
        block = <size_t>min(size - at, <int64_t>XERIAL_BLOCK)
        length = snappy_max_compressed_length(block)
        if not reserve(into, INT32_SIZE + length, <size_t>-1):
            return COMPRESSION_NO_MEMORY
        if snappy_compress(data + at, block, into.data + into.size + <int>INT32_SIZE, &length) != 0:
            return COMPRESSION_NO_MEMORY
        store_int32(into.data + into.size, <int32_t>length)
        into.size += INT32_SIZE + length
        at += block
    return COMPRESSION_OK


cdef int lz4_compress_frame(int level, const uint8_t* data, int64_t size, ByteBuffer* into) noexcept nogil:
    cdef size_t written
    if level == COMPRESSION_DEFAULT_LEVEL or level == LZ4_DEFAULT:
        level = LZ4_FAST
    else:
        level = min(max(level, <int>LZ4_HIGH_LOWEST), <int>LZ4_HIGH_HIGHEST)
    if not reserve(into, lz4_bound(size), <size_t>-1):
        return COMPRESSION_NO_MEMORY
    written = lz4_compress(into.data + into.size, into.capacity - into.size, data, size, level)
    if LZ4F_isError(written):
        return COMPRESSION_NO_MEMORY
    into.size += written
    return COMPRESSION_OK


cdef int zstd_compress(int level, const uint8_t* data, int64_t size, ByteBuffer* into) noexcept nogil:
    cdef ZSTD_CCtx* context = zstd_out()
    cdef size_t written
    if context == NULL or not reserve(into, ZSTD_compressBound(size), <size_t>-1):
        return COMPRESSION_NO_MEMORY
    level = ZSTD_DEFAULT if level == COMPRESSION_DEFAULT_LEVEL else min(max(level, <int>ZSTD_LOWEST), <int>ZSTD_HIGHEST)
    written = ZSTD_compressCCtx(context, into.data + into.size, into.capacity - into.size, data, size, level)
    zstd_out_done()
    if ZSTD_isError(written):
        return COMPRESSION_NO_MEMORY
    into.size += written
    return COMPRESSION_OK


# ---- decompression ---------------------------------------------------------------------------------------------------


cdef int decompress_into(int codec, const uint8_t* data, int64_t size, int64_t max_bytes,
                         ByteBuffer* into) noexcept nogil:
    cdef size_t start = into.size
    # One byte more than max_bytes: a filled last byte shows that the output is too large.
    cdef size_t limit = start + <size_t>max(max_bytes, <int64_t>0) + 1
    cdef int status
    if size <= 0:
        if codec in (CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD, CODEC_LZ4_V0):
            return COMPRESSION_CORRUPT
        return COMPRESSION_UNKNOWN_CODEC
    if codec == CODEC_GZIP:
        status = gzip_decompress(data, size, limit, into)
    elif codec == CODEC_SNAPPY:
        status = snappy_decompress(data, size, limit, into)
    elif codec == CODEC_LZ4 or codec == CODEC_LZ4_V0:
        status = lz4_decompress(data, size, limit, codec == CODEC_LZ4_V0, into)
        if status != COMPRESSION_OK:
            lz4_in_failed()
    elif codec == CODEC_ZSTD:
        status = zstd_decompress(data, size, limit, into)
    else:
        status = COMPRESSION_UNKNOWN_CODEC
    if status == COMPRESSION_OK and into.size == limit:
        status = COMPRESSION_TOO_LARGE
    if status != COMPRESSION_OK:
        into.size = start
    return status


cdef inline size_t first_room(int64_t size) noexcept nogil:
    return max(<size_t>FIRST_ROOM, FIRST_RATIO * <size_t>size)


cdef int gzip_decompress(const uint8_t* data, int64_t size, size_t limit, ByteBuffer* into) noexcept nogil:
    cdef z_stream* stream = gzip_in()
    cdef size_t room
    cdef int code
    if stream == NULL or not reserve(into, first_room(size), limit):
        return COMPRESSION_NO_MEMORY
    stream.avail_in = 0
    while True:
        if stream.avail_in == 0 and size > 0:
            stream.next_in = data
            stream.avail_in = <unsigned int>min(size, <int64_t>MAX_ROOM)
            data += stream.avail_in
            size -= stream.avail_in
        if not reserve(into, 1, limit):
            return COMPRESSION_NO_MEMORY
        room = min(min(into.capacity, limit) - into.size, <size_t>MAX_ROOM)
        stream.next_out = into.data + into.size
        stream.avail_out = <unsigned int>room
        code = inflate(stream, Z_NO_FLUSH)
        into.size += room - stream.avail_out
        if into.size == limit:
            return COMPRESSION_TOO_LARGE
        if code == Z_STREAM_END:
            if stream.avail_in == 0 and size == 0:
                return COMPRESSION_OK
            # Another member follows.
            inflateReset(stream)
        elif code == Z_MEM_ERROR:
            return COMPRESSION_NO_MEMORY
        elif code != Z_OK and code != Z_BUF_ERROR:
            return COMPRESSION_CORRUPT
        elif stream.avail_in == 0 and size == 0 and stream.avail_out > 0:
            return COMPRESSION_CORRUPT          # the input ends within a member


cdef int snappy_decompress(const uint8_t* data, int64_t size, size_t limit, ByteBuffer* into) noexcept nogil:
    cdef int64_t at = XERIAL_HEADER_SIZE
    cdef int64_t length
    cdef int status
    if size < XERIAL_HEADER_SIZE or memcmp(data, XERIAL_HEADER, XERIAL_MAGIC_SIZE) != 0:
        return snappy_block(data, size, limit, into)
    while at < size:
        if size - at < INT32_SIZE:
            return COMPRESSION_CORRUPT
        length = load_int32(data + at)
        at += INT32_SIZE
        if length < 0 or length > size - at:
            return COMPRESSION_CORRUPT
        status = snappy_block(data + at, length, limit, into)
        if status != COMPRESSION_OK:
            return status
        at += length
    return COMPRESSION_OK


cdef int snappy_block(const uint8_t* data, int64_t size, size_t limit, ByteBuffer* into) noexcept nogil:
    """Opens one raw block. An impossible or too large size is refused before memory is allocated."""
    cdef size_t length
    if (snappy_uncompressed_length(<const char*>data, size, &length) != SNAPPY_OK
            or length > SNAPPY_MAX_RATIO * <size_t>size):
        return COMPRESSION_CORRUPT
    if length >= limit - into.size:
        return COMPRESSION_TOO_LARGE
    # One byte even for an empty block, so that there is a pointer.
    if not reserve(into, length + 1, limit):
        return COMPRESSION_NO_MEMORY
    if snappy_uncompress(data, size, into.data + into.size, &length) != 0:
        return COMPRESSION_CORRUPT
    into.size += length
    return COMPRESSION_OK


cdef int lz4_decompress(const uint8_t* data, int64_t size, size_t limit, bint any_checksum,
                        ByteBuffer* into) noexcept nogil:
    cdef LZ4F_dctx* context = lz4_in()
    cdef int64_t end = 0
    cdef uint8_t checksum
    cdef bint done
    cdef int status
    if context == NULL or not reserve(into, first_room(size), limit):
        return COMPRESSION_NO_MEMORY
    if any_checksum:
        if size < LZ4_MAGIC_SIZE + 3 or memcmp(data, LZ4_MAGIC, LZ4_MAGIC_SIZE) != 0:
            return COMPRESSION_CORRUPT
        end = LZ4_MAGIC_SIZE + 2
        end += 8 if data[<int>LZ4_MAGIC_SIZE] & LZ4_SIZE_FLAG else 0
        end += 4 if data[<int>LZ4_MAGIC_SIZE] & LZ4_DICTIONARY_FLAG else 0
        if end >= size:
            return COMPRESSION_CORRUPT
        checksum = <uint8_t>(xxh32_short(data + <int>LZ4_MAGIC_SIZE, end - LZ4_MAGIC_SIZE) >> 8)
        status = lz4_feed(context, data, end, limit, into, &done)
        if status == COMPRESSION_OK:
            status = lz4_feed(context, &checksum, 1, limit, into, &done)
        if status != COMPRESSION_OK:
            return status
        end += 1
    status = lz4_feed(context, data + end, size - end, limit, into, &done)
    return status if status != COMPRESSION_OK or done else COMPRESSION_CORRUPT


cdef int lz4_feed(LZ4F_dctx* context, const uint8_t* data, int64_t size, size_t limit, ByteBuffer* into,
                  bint* done) noexcept nogil:
    """Opens all of data; sets `done` when it ends at the end of a frame."""
    cdef size_t taken, room, hint
    done[0] = False
    while True:
        # With room for a block of the size that Kafka's clients write, lz4 opens the block in place; larger blocks go
        # through the context's buffer.
        if not reserve(into, FIRST_ROOM, limit):
            return COMPRESSION_NO_MEMORY
        room = min(into.capacity, limit) - into.size
        taken = <size_t>size
        hint = LZ4F_decompress(context, into.data + into.size, &room, data, &taken, NULL)
        if LZ4F_isError(hint):
            return COMPRESSION_CORRUPT
        into.size += room
        data += taken
        size -= taken
        if into.size == limit:
            return COMPRESSION_TOO_LARGE
        if size == 0 and (hint == 0 or room == 0):
            done[0] = hint == 0
            return COMPRESSION_OK


cdef int zstd_decompress(const uint8_t* data, int64_t size, size_t limit, ByteBuffer* into) noexcept nogil:
    cdef ZSTD_DCtx* context = zstd_in()
    cdef ZSTD_inBuffer source
    cdef ZSTD_outBuffer out
    cdef unsigned long long announced = ZSTD_getFrameContentSize(data, size)
    cdef size_t room = first_room(size)
    cdef size_t hint
    cdef int status
    if context == NULL:
        return COMPRESSION_NO_MEMORY
    # With room for the whole frame zstd opens it in place. Unknown and error are the two largest numbers.
    if announced <= BELIEVED_RATIO * <unsigned long long>size:
        room = <size_t>announced + 1
    if not reserve(into, room, limit):
        return COMPRESSION_NO_MEMORY
    source.src = data
    source.size = size
    source.pos = 0
    while True:
        if not reserve(into, 1, limit):
            status = COMPRESSION_NO_MEMORY
            break
        out.dst = into.data + into.size
        out.size = min(into.capacity, limit) - into.size
        out.pos = 0
        hint = ZSTD_decompressStream(context, &out, &source)
        into.size += out.pos
        if ZSTD_isError(hint):
            status = COMPRESSION_CORRUPT
            break
        if into.size == limit:
            status = COMPRESSION_TOO_LARGE
            break
        if source.pos == source.size and hint == 0:
            status = COMPRESSION_OK
            break
        if source.pos == source.size and out.pos < out.size:
            status = COMPRESSION_CORRUPT        # all of it read and all flushed, and it wants more
            break
    zstd_in_done()
    return status


cdef uint32_t xxh32_short(const uint8_t* data, int64_t size) noexcept nogil:
    """XXH32 with seed 0 of at most 15 bytes; the longest LZ4 frame header has 14 behind its magic."""
    cdef uint32_t value = 374761393u + <uint32_t>size
    cdef uint32_t word
    while size >= 4:
        memcpy(&word, data, 4)
        value += word * <uint32_t>3266489917u
        value = ((value << 17) | (value >> 15)) * <uint32_t>668265263u
        data += 4
        size -= 4
    while size > 0:
        value += data[0] * <uint32_t>374761393u
        value = ((value << 11) | (value >> 21)) * <uint32_t>2654435761u
        data += 1
        size -= 1
    value = (value ^ (value >> 15)) * <uint32_t>2246822519u
    value = (value ^ (value >> 13)) * <uint32_t>3266489917u
    return value ^ (value >> 16)


# ---- for Python ------------------------------------------------------------------------------------------------------


@cython.final
cdef class Decompressed:
    def __cinit__(self):
        buffer_init(&self.buffer)

    def __dealloc__(self):
        buffer_free(&self.buffer)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.buffer.data if self.buffer.data != NULL else <uint8_t*>XERIAL_HEADER,
                          self.buffer.size, 1, flags)


def compress(int codec, data, int level=COMPRESSION_DEFAULT_LEVEL):
    """(status, bytes): compress_into of a bytes-like object; empty unless the status is OK."""
    cdef Py_buffer view
    cdef ByteBuffer into
    cdef int status
    buffer_init(&into)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            status = compress_into(codec, level, <const uint8_t*>view.buf, view.len, &into)
        return status, PyBytes_FromStringAndSize(<const char*>into.data, into.size) if status == COMPRESSION_OK else b""
    finally:
        buffer_free(&into)
        PyBuffer_Release(&view)


def decompress(int codec, data, int64_t max_bytes):
    """(status, memoryview): decompress_into of a bytes-like object; empty unless the status is OK."""
    cdef Py_buffer view
    cdef Decompressed out = Decompressed()
    cdef int status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            status = decompress_into(codec, <const uint8_t*>view.buf, view.len, max_bytes, &out.buffer)
    finally:
        PyBuffer_Release(&view)
    return status, memoryview(out)


def xxh32(data):
    """XXH32 with seed 0 of at most 15 bytes, the checksum of an LZ4 frame's header. ValueError for more."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len > 15:
            raise ValueError(f"{view.len} bytes are more than the 15 of a frame's header")
        return xxh32_short(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
