/* CRC-32C in three interleaved streams of the CPU's instruction, which hide its latency. */
#ifndef KAFKAPY_PERF_CHECKSUM_H
#define KAFKAPY_PERF_CHECKSUM_H
#include "wire.h"

enum { STREAM = 1024 };

/* The state of a stream after STREAM more zero bytes, by each byte of the state: the state is linear over GF(2). */
static uint32_t stream_shift[4][256];

static inline uint64_t after_zeros(uint64_t crc) {
    for (size_t i = 0; i < STREAM / 8; i++) crc = _mm_crc32_u64(crc, 0);
    return crc;
}

static inline void checksum_start(void) {
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t v = 0; v < 256; v++) stream_shift[byte][v] = (uint32_t)after_zeros((uint64_t)v << (8 * byte));
}

static inline uint64_t shifted(uint64_t crc) {
    return stream_shift[0][crc & 0xFF] ^ stream_shift[1][crc >> 8 & 0xFF] ^ stream_shift[2][crc >> 16 & 0xFF] ^ stream_shift[3][crc >> 24 & 0xFF];
}

/* The value, as crc32c gives it; after checksum_start. */
static inline uint32_t crc32c_streams(const uint8_t *p, size_t n) {
    uint64_t crc = 0xFFFFFFFF;
    for (; n >= 3 * STREAM; p += 3 * STREAM, n -= 3 * STREAM) {
        uint64_t second = 0, third = 0, x, y, z;
        for (const uint8_t *q = p, *end = p + STREAM; q < end; q += 8) {
            memcpy(&x, q, 8); memcpy(&y, q + STREAM, 8); memcpy(&z, q + 2 * STREAM, 8);
            crc = _mm_crc32_u64(crc, x);
            second = _mm_crc32_u64(second, y);
            third = _mm_crc32_u64(third, z);
        }
        crc = shifted(shifted(crc) ^ second) ^ third;
    }
    for (; n >= 8; p += 8, n -= 8) { uint64_t v; memcpy(&v, p, 8); crc = _mm_crc32_u64(crc, v); }
    for (; n; p++, n--) crc = _mm_crc32_u8((uint32_t)crc, *p);
    return (uint32_t)crc ^ 0xFFFFFFFF;
}

/* Size of the whole batch at p, 0 when the rest is only a part of one. Its CRC must be right, and it must begin at the offset. */
static inline size_t checked_batch(const uint8_t *p, size_t left, int64_t offset) {
    if (left < BATCH_HEADER) return 0;
    size_t whole = BATCH_LOG_OVERHEAD + (size_t)get32(p + BATCH_LENGTH_AT);
    if (whole < BATCH_HEADER) fail("impossible batch size", (long long)whole);
    if (left < whole) return 0;
    if (p[BATCH_MAGIC_AT] != 2 || (int64_t)get64(p) != offset) fail("a batch at another offset", (long long)get64(p));
    if (crc32c_streams(p + BATCH_ATTRIBUTES_AT, whole - BATCH_ATTRIBUTES_AT) != get32(p + BATCH_CRC_AT)) fail("a wrong CRC at offset", offset);
    return whole;
}
#endif
