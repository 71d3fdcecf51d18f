/* Fields of replies, read with their bounds, and of requests, whose room grows. */
#ifndef KAFKAPY_PERF_FIELDS_H
#define KAFKAPY_PERF_FIELDS_H
#include "wire.h"

enum { TOPIC_ID = 16 };

typedef struct { const uint8_t *p, *end; } cursor;

static inline cursor reply_of(const connection *c) {
    const uint8_t *p = c->reply + FRAME_SIZE;
    return (cursor){p + 4, p + get32(c->reply)};                     /* behind the correlation id */
}

static inline const uint8_t *take(cursor *r, int64_t n) {
    if (n < 0 || n > r->end - r->p) fail("short reply", n);
    const uint8_t *at = r->p;
    r->p += n;
    return at;
}
static inline int16_t take16(cursor *r) { return get16(take(r, 2)); }
static inline int32_t take32(cursor *r) { return (int32_t)get32(take(r, 4)); }
static inline int64_t take64(cursor *r) { return (int64_t)get64(take(r, 8)); }
static inline uint32_t take_varint(cursor *r) {
    uint32_t v = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        uint8_t b = *take(r, 1);
        v |= (uint32_t)(b & 0x7F) << shift;
        if (!(b & 0x80)) return v;
    }
    fail("overlong varint", v);
    return 0;
}
/* Of a compact array or string; null counts as empty. */
static inline uint32_t take_count(cursor *r) { uint32_t n = take_varint(r); return n ? n - 1 : 0; }
static inline void take_compact(cursor *r) { take(r, take_count(r)); }
static inline void take_tags(cursor *r) {
    for (uint32_t n = take_varint(r); n; n--) { take_varint(r); take(r, take_varint(r)); }
}

static inline uint8_t *add(connection *c, size_t n) {
    while (c->request_size + n > c->request_capacity) {
        c->request_capacity = c->request_capacity * 2 + 512;
        c->request = realloc(c->request, c->request_capacity);
        if (c->request == NULL) fail("no memory", (long long)c->request_capacity);
    }
    c->request_size += n;
    return c->request + c->request_size - n;
}
static inline void add8(connection *c, int v) { *add(c, 1) = (uint8_t)v; }
static inline void add16(connection *c, int v) { uint8_t *p = add(c, 2); p[0] = (uint8_t)(v >> 8); p[1] = (uint8_t)v; }
static inline void add32(connection *c, int32_t v) { put32(add(c, 4), (uint32_t)v); }
static inline void add64(connection *c, int64_t v) { put64(add(c, 8), (uint64_t)v); }
static inline void add_bytes(connection *c, const void *bytes, size_t n) { memcpy(add(c, n), bytes, n); }
static inline void add_string(connection *c, const char *s) { size_t n = strlen(s); add16(c, (int)n); add_bytes(c, s, n); }
static inline void add_varint(connection *c, uint32_t v) { for (; v >= 0x80; v >>= 7) add8(c, (int)(v & 0x7F) | 0x80); add8(c, (int)v); }
static inline void add_count(connection *c, size_t n) { add_varint(c, (uint32_t)n + 1); }
static inline void add_compact(connection *c, const char *s) { size_t n = strlen(s); add_count(c, n); add_bytes(c, s, n); }

/* The header; without tags. */
static inline void begin_request(connection *c, int key, int version) {
    c->request_size = 0;
    add32(c, 0);
    add16(c, key);
    add16(c, version);
    add32(c, 0);
    add_string(c, "load");
}
#endif
