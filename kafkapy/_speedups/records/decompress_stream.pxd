"""Decompression piece by piece through one buffer of the calling thread, so no whole payload is ever in memory.

    gzip    RFC 1952; several members one after the other are read
    snappy  blocks in the frame of snappy-java ("xerial"), each a piece; a raw block, as librdkafka writes it, is one
            piece
    lz4     LZ4 frames; a piece is one block of those that Kafka's clients write, or a part of a larger block
    zstd    Zstandard frames; a frame that cannot exceed the buffer is opened in place

The accepted bytes of each codec are those of compression.pyx. The buffer has STREAM_PIECE bytes. Only a snappy block
can be larger: the buffer grows for that block, within the bound of the block's own size, and memory above 2 MB is freed
afterwards. Contexts and the buffer stay with the thread, so a batch costs no allocation. Nothing here takes the GIL.
"""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    STREAM_PIECE = 128 * 1024       # bytes of a piece at most, except snappy
    STREAM_KEPT = 64                # bytes of the last piece to keep in front of the next, at most

cdef enum StreamStatus:
    STREAM_PIECE_READY = 1
    STREAM_END = 0
    STREAM_CORRUPT = -1             # invalid bytes for this codec, an early end, or bytes behind the end
    STREAM_NO_MEMORY = -3

cdef struct ByteStream:
    int codec                       # 1 gzip, 2 snappy, 3 lz4, 4 zstd (record_batch.pxd)
    const uint8_t* data             # unread input
    int64_t size
    int64_t limit                   # of bytes in a piece, at most STREAM_PIECE
    void* context                   # of the codec; owned by the thread
    bint framed                     # snappy: xerial blocks follow
    bint ended                      # no more pieces
    bint whole                      # zstd: opened in place
    uint8_t* out                    # place of the next piece, behind the kept bytes
    uint8_t* piece                  # the last piece, with the kept bytes in front of it
    int64_t piece_size

# STREAM_PIECE_READY (there may be pieces), STREAM_CORRUPT or STREAM_NO_MEMORY. A thread has one stream at a
# time and must close it in any case.
cdef int stream_open(ByteStream* s, int codec, const uint8_t* data, int64_t size) noexcept nogil
# Puts the next piece into s.piece and s.piece_size, with the last `kept` bytes of the piece before in front. A piece is
# never empty.
cdef int stream_next(ByteStream* s, int64_t kept) noexcept nogil
cdef void stream_close(ByteStream* s, bint failed) noexcept nogil
