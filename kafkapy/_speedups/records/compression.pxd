"""The codecs of record batches in C: gzip (zlib), snappy (libsnappy), LZ4 frame (liblz4), Zstandard (libzstd).

Nothing here takes the GIL. Both functions append to a ByteBuffer and leave it unchanged on an error. They trust no size
that the data announces: the output grows step by step and stops at max_bytes. Each thread keeps its contexts, so a call
sets up nothing (see compression.pyx).
"""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.base.wire cimport ByteBuffer

cdef enum:
    COMPRESSION_OK = 0
    COMPRESSION_CORRUPT = -1        # invalid bytes for this codec, an early end, or bytes behind the end
    COMPRESSION_TOO_LARGE = -2      # the output is larger than max_bytes
    COMPRESSION_NO_MEMORY = -3
    COMPRESSION_UNKNOWN_CODEC = -4  # none of 1 to 4 and CODEC_LZ4_V0

cdef enum:
    COMPRESSION_DEFAULT_LEVEL = -0x7FFFFFFF
    CODEC_LZ4_V0 = 8                # LZ4 of message format v0: the frame's header checksum is wrong by design
                                    # (KAFKA-3160)

# Allocates the thread-local memory of this module, at the start of a data-plane thread. glibc ends the process when
# that allocation fails, so it must not happen while memory is short.
cdef void compression_thread_begin() noexcept nogil
# codec: 1 gzip, 2 snappy, 3 lz4, 4 zstd (record_batch.pxd), or CODEC_LZ4_V0. level: as in compression.<codec>.level, or
# COMPRESSION_DEFAULT_LEVEL; the nearest valid level replaces one out of range. COMPRESSION_OK, COMPRESSION_NO_MEMORY or
# COMPRESSION_UNKNOWN_CODEC.
cdef int compress_into(int codec, int level, const uint8_t* data, int64_t size, ByteBuffer* into) noexcept nogil
# COMPRESSION_OK or one of the errors above. The output never takes more than max_bytes and the codec's window.
cdef int decompress_into(int codec, const uint8_t* data, int64_t size, int64_t max_bytes,
                         ByteBuffer* into) noexcept nogil


cdef class Decompressed:
    """The memory of a decompressed payload, as a read-only buffer."""
    cdef ByteBuffer buffer
