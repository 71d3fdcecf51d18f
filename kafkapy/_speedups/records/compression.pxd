"""The codecs of record batches in C, without the GIL: gzip (zlib), snappy (libsnappy), LZ4 frame (liblz4), Zstandard
(libzstd).

Both functions append to a ByteBuffer and leave it as it was on an error. No size that the data announces is believed:
output grows as it comes and stops at max_bytes. Contexts are kept per thread, so a call sets up nothing (see
compression.pyx).
"""

from libc.stdint cimport int64_t, uint8_t

from kafkapy._speedups.base.wire cimport ByteBuffer

cdef enum:
    COMPRESSION_OK = 0
    COMPRESSION_CORRUPT = -1        # not this codec's bytes, or they end early, or something follows them
    COMPRESSION_TOO_LARGE = -2      # they open to more than max_bytes
    COMPRESSION_NO_MEMORY = -3
    COMPRESSION_UNKNOWN_CODEC = -4  # none of 1 to 4 and CODEC_LZ4_V0

cdef enum:
    COMPRESSION_DEFAULT_LEVEL = -0x7FFFFFFF
    CODEC_LZ4_V0 = 8                # LZ4 as message format v0 has it: the frame's header checksum is wrong by design
                                    # (KAFKA-3160)

# At the start of a thread of the data plane: has what is thread-local here allocated. glibc ends the process when that
# fails, so it is not to happen while memory is short.
cdef void compression_thread_begin() noexcept nogil
# codec: 1 gzip, 2 snappy, 3 lz4, 4 zstd (record_batch.pxd), or CODEC_LZ4_V0. level: as in compression.<codec>.level, or
# COMPRESSION_DEFAULT_LEVEL; out of range it is the nearest one. COMPRESSION_OK, COMPRESSION_NO_MEMORY or
# COMPRESSION_UNKNOWN_CODEC.
cdef int compress_into(int codec, int level, const uint8_t* data, int64_t size, ByteBuffer* into) noexcept nogil
# COMPRESSION_OK or one of the errors above. Never holds more than max_bytes (and what the codec's window takes) for the
# output.
cdef int decompress_into(int codec, const uint8_t* data, int64_t size, int64_t max_bytes,
                         ByteBuffer* into) noexcept nogil


cdef class Decompressed:
    """The memory of what was decompressed, as a read-only buffer."""
    cdef ByteBuffer buffer
