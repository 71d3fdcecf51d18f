"""Decompression piece by piece through one buffer of the calling thread: a batch is never there as a whole. Without the
GIL.

    gzip    RFC 1952; several members one after the other are read
    snappy  blocks framed as snappy-java ("xerial") does, each a piece; a raw block, as librdkafka writes it, is one
            piece
    lz4     LZ4 frames; a piece is one block of those that Kafka's clients write, or a part of a larger one
    zstd    Zstandard frames; one that cannot open to more than the buffer is opened in place

What these codecs take as theirs is what compression.pyx takes. The buffer has STREAM_PIECE bytes. Only a snappy block
can be larger: it grows for that block, to what the block's own size allows, and more than 2 MB are given back
afterwards. Contexts and the buffer stay with the thread, so that a batch costs no allocation.
"""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    STREAM_PIECE = 128 * 1024       # bytes of a piece at most, but for snappy
    STREAM_KEPT = 64                # bytes of the last piece that may be kept in front of the next one

cdef enum StreamStatus:
    STREAM_PIECE_READY = 1
    STREAM_END = 0
    STREAM_CORRUPT = -1             # not this codec's bytes, or they end early, or something follows them
    STREAM_NO_MEMORY = -3

cdef struct ByteStream:
    int codec                       # 1 gzip, 2 snappy, 3 lz4, 4 zstd (record_batch.pxd)
    const uint8_t* data             # what was not read yet
    int64_t size
    int64_t limit                   # of bytes in a piece, at most STREAM_PIECE
    void* context                   # of the codec; the thread's
    bint framed                     # snappy: xerial blocks follow
    bint ended                      # nothing comes any more
    bint whole                      # zstd: opened in place
    uint8_t* out                    # where the next piece goes, behind what is kept
    uint8_t* piece                  # the last piece, with what was kept in front of it
    int64_t piece_size

# STREAM_PIECE_READY (there may be pieces), STREAM_CORRUPT or STREAM_NO_MEMORY. One stream of a thread at a time; close
# it in any case.
cdef int stream_open(ByteStream* s, int codec, const uint8_t* data, int64_t size) noexcept nogil
# The next piece in s.piece and s.piece_size, the last `kept` bytes of the one before it in front. A piece is never
# empty.
cdef int stream_next(ByteStream* s, int64_t kept) noexcept nogil
cdef void stream_close(ByteStream* s, bint failed) noexcept nogil
