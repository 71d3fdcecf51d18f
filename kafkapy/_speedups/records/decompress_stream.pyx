"""Decompression piece by piece (see decompress_stream.pxd)."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memmove

from kafkapy._speedups.base.wire cimport load_int32
from kafkapy._speedups.records.record_batch cimport CODEC_GZIP, CODEC_LZ4, CODEC_SNAPPY, CODEC_ZSTD

cdef extern from "lz4frame.h" nogil:
    """
    #include <stdlib.h>
    #include <string.h>
    #include <snappy-c.h>
    #define ZLIB_CONST
    #include <zlib.h>
    #define ZSTD_STATIC_LINKING_ONLY
    #include <zstd.h>

    /* A zstd context above this size is not kept: a usual client's frame has a window of 2 MB, one of the highest
       levels 8 MB. */
    static const size_t kp_stream_keep = 10 << 20;
    static const size_t kp_stream_buffer = 128 * 1024 + 64;
    /* A raw snappy block of a batch as large as brokers take by default. */
    static const size_t kp_stream_kept_buffer = 2 << 20;

    struct KpStreams {
        ZSTD_DCtx* zstd = nullptr;
        LZ4F_dctx* lz4 = nullptr;
        z_stream gzip;
        bool gzip_ready = false;
        uint8_t* buffer = nullptr;
        size_t capacity = 0;

        ~KpStreams() {
            ZSTD_freeDCtx(zstd);
            LZ4F_freeDecompressionContext(lz4);
            if (gzip_ready) inflateEnd(&gzip);
            free(buffer);
        }
    };
    static thread_local KpStreams kp_streams;

    /* The thread's buffer with at least this much room; what is in it stays. */
    static uint8_t* kp_stream_room(size_t room) {
        if (room < kp_stream_buffer) room = kp_stream_buffer;
        if (kp_streams.capacity < room) {
            uint8_t* larger = (uint8_t*)realloc(kp_streams.buffer, room);
            if (!larger) return nullptr;
            kp_streams.buffer = larger;
            kp_streams.capacity = room;
        }
        return kp_streams.buffer;
    }
    static void kp_stream_shrink(void) {
        if (kp_streams.capacity > kp_stream_kept_buffer) {
            free(kp_streams.buffer);
            kp_streams.buffer = nullptr;
            kp_streams.capacity = 0;
        }
    }
    static void* kp_stream_gzip(void) {
        z_stream* stream = &kp_streams.gzip;
        if (kp_streams.gzip_ready) {
            inflateReset(stream);
            return stream;
        }
        memset(stream, 0, sizeof *stream);
        if (inflateInit2(stream, 15 + 16) != Z_OK) return nullptr;
        kp_streams.gzip_ready = true;
        return stream;
    }
    static void* kp_stream_lz4(void) {
        if (!kp_streams.lz4) {
            if (LZ4F_isError(LZ4F_createDecompressionContext(&kp_streams.lz4, LZ4F_VERSION))) kp_streams.lz4 = nullptr;
        } else {
            LZ4F_resetDecompressionContext(kp_streams.lz4);
        }
        return kp_streams.lz4;
    }
    /* A context that met an error may be damaged, whatever its reset says; one that held large blocks keeps their
       memory. */
    static void kp_stream_lz4_drop(void) {
        LZ4F_freeDecompressionContext(kp_streams.lz4);
        kp_streams.lz4 = nullptr;
    }
    static void* kp_stream_zstd(void) {
        if (!kp_streams.zstd) kp_streams.zstd = ZSTD_createDCtx();
        else ZSTD_DCtx_reset(kp_streams.zstd, ZSTD_reset_session_only);
        return kp_streams.zstd;
    }
    static void kp_stream_zstd_done(void) {
        if (kp_streams.zstd && ZSTD_sizeof_DCtx(kp_streams.zstd) > kp_stream_keep) {
            ZSTD_freeDCtx(kp_streams.zstd);
            kp_streams.zstd = nullptr;
        }
    }
    /* Both read the blocks' headers alone, and say more than it takes where they cannot tell. */
    static int kp_stream_zstd_fits(const void* data, size_t size, size_t room) {
        unsigned long long bound = ZSTD_decompressBound(data, size);
        return bound <= room;
    }
    static int kp_stream_snappy(const uint8_t* data, size_t size, uint8_t* out, size_t* out_size) {
        return snappy_uncompress((const char*)data, size, (char*)out, out_size) == SNAPPY_OK ? 0 : -1;
    }
    """
    ctypedef struct LZ4F_dctx:
        pass
    unsigned LZ4F_isError(size_t code)
    size_t LZ4F_decompress(LZ4F_dctx* context, void* out, size_t* out_size, const void* data, size_t* size,
                           const void* options)
    uint8_t* stream_room "kp_stream_room"(size_t room)
    void stream_shrink "kp_stream_shrink"()
    void* gzip_context "kp_stream_gzip"()
    void* lz4_context "kp_stream_lz4"()
    void lz4_drop "kp_stream_lz4_drop"()
    void* zstd_context "kp_stream_zstd"()
    void zstd_done "kp_stream_zstd_done"()
    bint zstd_fits "kp_stream_zstd_fits"(const void* data, size_t size, size_t room)
    int snappy_open "kp_stream_snappy"(const uint8_t* data, size_t size, uint8_t* out, size_t* out_size)

cdef extern from "zstd.h" nogil:
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
    size_t ZSTD_decompressStream(ZSTD_DCtx* context, ZSTD_outBuffer* out, ZSTD_inBuffer* data)
    size_t ZSTD_decompressDCtx(ZSTD_DCtx* context, void* out, size_t room, const void* data, size_t size)

cdef extern from "zlib.h" nogil:
    ctypedef struct z_stream:
        const unsigned char* next_in
        unsigned int avail_in
        unsigned char* next_out
        unsigned int avail_out
    int Z_OK, Z_STREAM_END, Z_BUF_ERROR, Z_MEM_ERROR, Z_NO_FLUSH
    int inflate(z_stream* stream, int flush)
    int inflateReset(z_stream* stream)

cdef extern from "snappy-c.h" nogil:
    int SNAPPY_OK
    int snappy_uncompressed_length(const char* data, size_t size, size_t* result)

cdef enum:
    MAX_INPUT = 1 << 30             # zlib counts in 32 bits
    SNAPPY_MAX_RATIO = 22           # the densest element copies 64 bytes and takes 3
    XERIAL_HEADER_SIZE = 16
    XERIAL_MAGIC_SIZE = 8
    INT32_SIZE = 4
    LZ4_BLOCK_SIZE_AT = 5           # of the frame's byte that tells the largest block
    LZ4_BLOCK_64_KB = 4

cdef const uint8_t* XERIAL_MAGIC = <const uint8_t*>b"\x82SNAPPY\x00"


cdef int stream_open(ByteStream* s, int codec, const uint8_t* data, int64_t size) noexcept nogil:
    s.codec = codec
    s.data = data
    s.size = size
    s.limit = STREAM_PIECE
    s.context = NULL
    s.framed = False
    s.ended = False
    s.whole = False
    s.piece = NULL
    s.piece_size = 0
    if size <= 0:
        return STREAM_CORRUPT
    s.out = stream_room(0)
    if s.out == NULL:
        return STREAM_NO_MEMORY
    if codec == CODEC_SNAPPY:
        if size >= XERIAL_HEADER_SIZE and memcmp(data, XERIAL_MAGIC, XERIAL_MAGIC_SIZE) == 0:
            s.framed = True
            s.data += <int>XERIAL_HEADER_SIZE
            s.size -= XERIAL_HEADER_SIZE
        return STREAM_PIECE_READY
    if codec == CODEC_GZIP:
        s.context = gzip_context()
        if s.context != NULL:
            (<z_stream*>s.context).avail_in = 0
    elif codec == CODEC_LZ4:
        s.context = lz4_context()
    elif codec == CODEC_ZSTD:
        s.context = zstd_context()
        s.whole = zstd_fits(data, size, STREAM_PIECE)
    else:
        return STREAM_CORRUPT
    return STREAM_PIECE_READY if s.context != NULL else STREAM_NO_MEMORY


cdef void stream_close(ByteStream* s, bint failed) noexcept nogil:
    if s.codec == CODEC_SNAPPY:
        stream_shrink()
    elif s.codec == CODEC_ZSTD:
        zstd_done()
    elif s.codec == CODEC_LZ4 and (failed or s.framed):
        lz4_drop()


cdef int stream_next(ByteStream* s, int64_t kept) noexcept nogil:
    cdef uint8_t* buffer = stream_room(0)
    cdef int64_t made = 0
    cdef int status
    if kept > 0:
        memmove(buffer, s.piece + s.piece_size - kept, kept)
    s.out = buffer + kept
    if s.codec == CODEC_LZ4:
        status = lz4_next(s, &made)
    elif s.codec == CODEC_ZSTD:
        status = zstd_next(s, &made)
    elif s.codec == CODEC_SNAPPY:
        status = snappy_next(s, kept, &made)
    else:
        status = gzip_next(s, &made)
    s.piece = s.out - kept
    s.piece_size = kept + made
    return status


cdef int gzip_next(ByteStream* s, int64_t* made) noexcept nogil:
    cdef z_stream* stream = <z_stream*>s.context
    cdef int code
    while not s.ended:
        if stream.avail_in == 0 and s.size > 0:
            stream.next_in = s.data
            stream.avail_in = <unsigned int>min(s.size, <int64_t>MAX_INPUT)
            s.data += stream.avail_in
            s.size -= stream.avail_in
        stream.next_out = s.out
        stream.avail_out = <unsigned int>s.limit
        code = inflate(stream, Z_NO_FLUSH)
        made[0] = s.limit - stream.avail_out
        if code == Z_STREAM_END:
            if stream.avail_in == 0 and s.size == 0:
                s.ended = True
            else:
                inflateReset(stream)            # another member follows
        elif code == Z_MEM_ERROR:
            return STREAM_NO_MEMORY
        elif code != Z_OK and code != Z_BUF_ERROR:
            return STREAM_CORRUPT
        elif stream.avail_in == 0 and s.size == 0 and stream.avail_out > 0:
            return STREAM_CORRUPT               # all of it read, and it wants more
        if made[0] > 0:
            return STREAM_PIECE_READY
    return STREAM_END


cdef int snappy_next(ByteStream* s, int64_t kept, int64_t* made) noexcept nogil:
    cdef uint8_t* buffer
    cdef int64_t block
    cdef size_t length
    while not s.ended:
        block = s.size
        if s.framed:
            if s.size == 0:
                break
            if s.size < INT32_SIZE:
                return STREAM_CORRUPT
            block = load_int32(s.data)
            s.data += <int>INT32_SIZE
            s.size -= INT32_SIZE
            if block < 0 or block > s.size:
                return STREAM_CORRUPT
        else:
            s.ended = True
        # An impossible size is refused before memory is allocated.
        if (snappy_uncompressed_length(<const char*>s.data, <size_t>block, &length) != SNAPPY_OK
                or length > SNAPPY_MAX_RATIO * <size_t>block):
            return STREAM_CORRUPT
        buffer = stream_room(<size_t>kept + length)
        if buffer == NULL:
            return STREAM_NO_MEMORY
        s.out = buffer + kept
        if snappy_open(s.data, <size_t>block, s.out, &length) != 0:
            return STREAM_CORRUPT
        s.data += block
        s.size -= block
        if length > 0:
            made[0] = <int64_t>length
            return STREAM_PIECE_READY
    return STREAM_END


cdef int lz4_next(ByteStream* s, int64_t* made) noexcept nogil:
    cdef size_t taken, room, hint
    # `ended`: the last call completed a frame. `framed`: blocks may be larger than the clients' 64 KiB.
    if s.piece == NULL and s.size > LZ4_BLOCK_SIZE_AT and (s.data[<int>LZ4_BLOCK_SIZE_AT] >> 4) & 7 > LZ4_BLOCK_64_KB:
        s.framed = True
    while s.size > 0 or not s.ended:
        room = <size_t>s.limit
        taken = <size_t>s.size
        hint = LZ4F_decompress(<LZ4F_dctx*>s.context, s.out, &room, s.data, &taken, NULL)
        if LZ4F_isError(hint):
            return STREAM_CORRUPT
        s.data += taken
        s.size -= <int64_t>taken
        s.ended = hint == 0
        if room > 0:
            made[0] = <int64_t>room
            return STREAM_PIECE_READY
        if taken == 0 and not s.ended:
            return STREAM_CORRUPT               # all of it read, and it wants more
    return STREAM_END


cdef int zstd_next(ByteStream* s, int64_t* made) noexcept nogil:
    cdef ZSTD_inBuffer source
    cdef ZSTD_outBuffer out
    cdef size_t hint
    if s.whole:
        if s.ended:
            return STREAM_END
        s.ended = True
        hint = ZSTD_decompressDCtx(<ZSTD_DCtx*>s.context, s.out, STREAM_PIECE, s.data, <size_t>s.size)
        if ZSTD_isError(hint):
            return STREAM_CORRUPT
        made[0] = <int64_t>hint
        return STREAM_PIECE_READY if hint > 0 else STREAM_END
    # `ended`: the last call completed and flushed a frame.
    while s.size > 0 or not s.ended:
        source.src = s.data
        source.size = <size_t>s.size
        source.pos = 0
        out.dst = s.out
        out.size = <size_t>s.limit
        out.pos = 0
        hint = ZSTD_decompressStream(<ZSTD_DCtx*>s.context, &out, &source)
        if ZSTD_isError(hint):
            return STREAM_CORRUPT
        s.data += source.pos
        s.size -= <int64_t>source.pos
        s.ended = hint == 0
        if out.pos > 0:
            made[0] = <int64_t>out.pos
            return STREAM_PIECE_READY
        if source.pos == 0 and not s.ended:
            return STREAM_CORRUPT               # all of it read and all flushed, and it wants more
    return STREAM_END
