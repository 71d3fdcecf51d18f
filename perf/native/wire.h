/* What the native programs share: big-endian numbers, the clock, latency histograms, connections, Fetch requests and their replies. */
#ifndef KAFKAPY_PERF_WIRE_H
#define KAFKAPY_PERF_WIRE_H
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FRAME_SIZE = 4,
    API_KEY_AT = 0, API_VERSION_AT = 2, CORRELATION_AT = 4,          /* in a request, after the frame size */
    BATCH_LENGTH_AT = 8, BATCH_MAGIC_AT = 16, BATCH_CRC_AT = 17, BATCH_ATTRIBUTES_AT = 21, BATCH_LAST_DELTA_AT = 23, BATCH_HEADER = 61,
    BATCH_LOG_OVERHEAD = 12,
    PRODUCE_VERSION = 7, FETCH_VERSION = 11,
    LARGEST_REPLY = 256 << 20
};

static const char *program = "load";

static inline void fail(const char *what, long long detail) {
    fprintf(stderr, "%s: %s (%lld)\n", program, what, detail);
    exit(1);
}

static inline uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return ntohl(v); }
static inline uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }
static inline int16_t get16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }
static inline void put32(uint8_t *p, uint32_t v) { v = htonl(v); memcpy(p, &v, 4); }
static inline void put64(uint8_t *p, uint64_t v) { put32(p, (uint32_t)(v >> 32)); put32(p + 4, (uint32_t)v); }

static inline int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) fail("cannot read a clock; has the broker ended?", clock);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* User and system time of other processes, from their CPU clocks (nanoseconds, threads that ended included). */
static inline int64_t cpu_ns_of(const char *pids) {
    int64_t sum = 0;
    for (const char *p = pids; *p;) {
        char *end;
        long pid = strtol(p, &end, 10);
        clockid_t clock;
        if (end == p || clock_getcpuclockid((pid_t)pid, &clock) != 0) fail("no such process", pid);
        sum += clock_ns(clock);
        p = *end == ',' ? end + 1 : end;
    }
    return sum;
}

static inline double own_cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* --- latencies: buckets of 1/64 of a power of two of 0.1 us, so an answer is at most 0.8 % from the true value --- */
enum { PARTS = 64 };
typedef struct {
    uint64_t buckets[64 * PARTS], count;
    int64_t worst_ns;
} histogram;

static inline void histogram_add(histogram *h, int64_t ns) {
    if (ns < 0) fail("a latency below zero", ns);
    uint64_t tenths = (uint64_t)ns / 100 + 1;
    int power = 63 - __builtin_clzll(tenths);
    int part = (int)(power >= 6 ? tenths >> (power - 6) : tenths << (6 - power)) & (PARTS - 1);
    h->buckets[power * PARTS + part]++;
    h->count++;
    if (ns > h->worst_ns) h->worst_ns = ns;
}

/* The smallest value that at least `share` of all values do not exceed (nearest rank), in microseconds; the middle of its bucket. */
static inline double percentile_us(const histogram *h, double share) {
    uint64_t rank = (uint64_t)(share * (double)h->count + 0.999999), seen = 0;
    if (rank < 1) rank = 1;
    for (int i = 0; i < 64 * PARTS; i++) {
        seen += h->buckets[i];
        if (h->count && seen >= rank) {
            double width = (double)(1ULL << (i / PARTS)) / PARTS;
            double low = (double)(1ULL << (i / PARTS)) + width * (i % PARTS);
            double middle = (low + (width > 1 ? width / 2 : 0.5) - 1) / 10.0, worst = (double)h->worst_ns / 1000.0;
            return middle < worst ? middle : worst;
        }
    }
    return 0;
}

static inline void histogram_print(const char *name, const histogram *h) {
    printf("\"%s\": {\"count\": %llu, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}", name,
           (unsigned long long)h->count, percentile_us(h, 0.5), percentile_us(h, 0.9), percentile_us(h, 0.99), percentile_us(h, 0.999),
           (double)h->worst_ns / 1000.0);
}

/* --- connections --- */
typedef struct {
    int fd;
    uint8_t *request;             /* frame size and frame */
    size_t request_size, sent, request_capacity;
    uint8_t *reply;
    size_t reply_capacity, got;
    int32_t correlation;
    int64_t due_ns;
    size_t keep;                  /* how much of the reply is copied out of the kernel, 0 for all of it; the rest is thrown away there */
    unsigned replies;             /* asked for so far */
    int partition;
    int64_t offset;               /* fetch: next offset wanted; produce: the last base offset given */
    size_t offset_at;             /* fetch: where the offset stands in the request */
    void *tls;                    /* SSL; NULL without TLS */
} connection;

/* Of the socket; a program with TLS sets those of its connections. */
static ssize_t (*secure_write)(connection *c, const void *data, size_t size);
static ssize_t (*secure_read)(connection *c, void *into, size_t size);

static inline ssize_t wire_write(connection *c, const void *data, size_t size) {
    return c->tls ? secure_write(c, data, size) : send(c->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Without `into` the bytes are thrown away. */
static inline ssize_t wire_read(connection *c, void *into, size_t size) {
    static uint8_t nowhere[16384];
    if (c->tls == NULL) return recv(c->fd, into, size, into ? MSG_DONTWAIT : MSG_DONTWAIT | MSG_TRUNC);
    if (into == NULL) { into = nowhere; size = size < sizeof nowhere ? size : sizeof nowhere; }
    return secure_read(c, into, size);
}

static inline int connect_to(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0) fail("cannot connect to the port", port);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static inline void open_connection(connection *c, int port, size_t reply_capacity) {
    c->fd = connect_to(port);
    c->offset = -1;
    c->reply_capacity = reply_capacity;
    c->reply = malloc(reply_capacity);
    if (c->reply == NULL) fail("no memory", (long long)reply_capacity);
}

static inline void load_frame(connection *c, const char *path) {
    struct stat info;
    FILE *in = fopen(path, "rb");
    if (in == NULL || fstat(fileno(in), &info) != 0) fail("cannot read a frame file", errno);
    c->request_size = FRAME_SIZE + (size_t)info.st_size;
    c->request = malloc(c->request_size);
    put32(c->request, (uint32_t)info.st_size);
    if (fread(c->request + FRAME_SIZE, 1, (size_t)info.st_size, in) != (size_t)info.st_size) fail("short frame file", errno);
    fclose(in);
}

/* Fetch version 11 without session, one partition; waits up to max_wait_ms for one byte. */
static inline void build_fetch(connection *c, const char *topic, int partition, int max_bytes, int max_wait_ms) {
    size_t n = strlen(topic);
    uint8_t *p = c->request = calloc(1, 256 + n);
    c->partition = partition;
    p += FRAME_SIZE;
    p[1] = 1; p[3] = FETCH_VERSION; p += 8;                          /* key, version, correlation */
    p[1] = 4; memcpy(p + 2, "load", 4); p += 6;                      /* client id */
    put32(p, (uint32_t)-1); put32(p + 4, (uint32_t)max_wait_ms); put32(p + 8, 1); put32(p + 12, (uint32_t)max_bytes); p += 16;
    *p++ = 0;                                                        /* isolation */
    put32(p, 0); put32(p + 4, (uint32_t)-1); p += 8;                 /* no session */
    put32(p, 1); p += 4;
    p[0] = (uint8_t)(n >> 8); p[1] = (uint8_t)n; memcpy(p + 2, topic, n); p += 2 + n;
    put32(p, 1); put32(p + 4, (uint32_t)partition); put32(p + 8, (uint32_t)-1); p += 12;
    c->offset_at = (size_t)(p - c->request); p += 8;
    put64(p, (uint64_t)-1); put32(p + 8, (uint32_t)max_bytes); p += 12;
    put32(p, 0); p += 4;                                             /* forgotten topics */
    p += 2;                                                          /* rack "" */
    c->request_size = (size_t)(p - c->request);
    put32(c->request, (uint32_t)(c->request_size - FRAME_SIZE));
}

static inline void start_request(connection *c, int64_t due) {
    c->due_ns = due;
    c->sent = c->got = 0;
    put32(c->request + FRAME_SIZE + CORRELATION_AT, (uint32_t)++c->correlation);
    if (c->offset_at) put64(c->request + c->offset_at, (uint64_t)c->offset);
}

/* 1 when all of the request is with the kernel. */
static inline int push(connection *c) {
    while (c->sent < c->request_size) {
        ssize_t n = wire_write(c, c->request + c->sent, c->request_size - c->sent);
        if (n < 0) {
            if (errno == EAGAIN) return 0;
            fail("send failed", errno);
        }
        c->sent += (size_t)n;
    }
    return 1;
}

/* 1 when the reply is whole. Its correlation id must be the request's. */
static inline int pull(connection *c) {
    for (;;) {
        ssize_t n;
        if (c->keep == 0)
            n = wire_read(c, c->reply + c->got, c->reply_capacity - c->got);
        else if (c->got < c->keep)
            n = wire_read(c, c->reply + c->got, c->keep - c->got);
        else
            n = wire_read(c, NULL, FRAME_SIZE + (size_t)get32(c->reply) - c->got);
        if (n == 0) fail("the broker closed the connection", c->correlation);
        if (n < 0) {
            if (errno == EAGAIN) return 0;
            fail("recv failed", errno);
        }
        c->got += (size_t)n;
        if (c->got < FRAME_SIZE) continue;
        size_t size = get32(c->reply);
        if (size < 4 || size > LARGEST_REPLY) fail("impossible reply size", (long long)size);
        if (c->got > size + FRAME_SIZE) fail("bytes after the reply", (long long)c->got);
        if (c->keep == 0 && size + FRAME_SIZE > c->reply_capacity) {
            c->reply_capacity = size + FRAME_SIZE;
            c->reply = realloc(c->reply, c->reply_capacity);
            if (c->reply == NULL) fail("no memory", (long long)size);
        }
        if (c->got == size + FRAME_SIZE) {
            if ((int32_t)get32(c->reply + FRAME_SIZE) != c->correlation) fail("wrong correlation id", get32(c->reply + FRAME_SIZE));
            return 1;
        }
    }
}

/* Produce version 7, one partition: error 0 and a base offset above the last one that this connection was given. */
static inline void check_produce(connection *c) {
    const uint8_t *p = c->reply + FRAME_SIZE;
    size_t size = get32(c->reply);
    enum { FIXED = 4 + 4 + 2 + 4 + 4 + 2 + 8 };
    if (size < FIXED || size < FIXED + (size_t)get16(p + 8)) fail("short produce reply", (long long)size);
    if (get32(p + 4) != 1) fail("topics in a produce reply", get32(p + 4));
    p += 4 + 4 + 2 + get16(p + 8);
    if (get32(p) != 1) fail("partitions in a produce reply", get32(p));
    p += 4 + 4;
    if (get16(p) != 0) fail("produce error code", get16(p));
    int64_t base = (int64_t)get64(p + 2);
    if (base <= c->offset) fail("base offset does not rise", base);
    c->offset = base;
}

/* Fetch version 11, one partition: no error; gives the record bytes. */
static inline const uint8_t *fetched_records(const connection *c, size_t *length) {
    const uint8_t *p = c->reply + FRAME_SIZE, *end = p + get32(c->reply);
    enum { HEAD = 4 + 4 + 2 + 4 + 4 + 2, TAIL = 4 + 4 + 2 + 8 + 8 + 8 + 4 };
    if (end - p < HEAD) fail("short fetch reply", (long long)(end - p));
    if (get16(p + 8) != 0) fail("fetch error code", get16(p + 8));
    if (get32(p + 14) != 1) fail("topics in a fetch reply", get32(p + 14));
    int topic = get16(p + 18);
    p += HEAD;
    if (topic < 0 || end - p < topic + TAIL) fail("short fetch reply", (long long)(end - p));
    p += topic + 4 + 4;
    if (get16(p) != 0) fail("fetch partition error code", get16(p));
    p += 2 + 8 + 8 + 8;
    int32_t aborted = (int32_t)get32(p);
    p += 4;
    if (aborted > 0) {
        if (end - p < (int64_t)aborted * 16) fail("short fetch reply", aborted);
        p += (int64_t)aborted * 16;
    }
    if (end - p < 8) fail("short fetch reply", (long long)(end - p));
    int64_t records = (int32_t)get32(p + 4);
    p += 8;
    if (records < 0 || records > end - p) fail("fetch records length", records);
    *length = (size_t)records;
    return p;
}

/* Size of the whole batch at p, 0 when the rest is only a part of one; it must hold the offset wanted. */
static inline size_t next_batch(const uint8_t *p, size_t left, int64_t wanted, int64_t *last) {
    if (left < BATCH_HEADER) return 0;
    size_t whole = BATCH_LOG_OVERHEAD + (size_t)get32(p + BATCH_LENGTH_AT);
    if (left < whole) return 0;
    int64_t base = (int64_t)get64(p);
    *last = base + get32(p + BATCH_LAST_DELTA_AT);
    if (p[BATCH_MAGIC_AT] != 2 || base > wanted || *last < wanted) fail("fetched a batch that was not asked for", base);
    return whole;
}

/* CRC-32C in one stream: the value, for frames whose payload is stamped. */
static inline uint32_t crc32c(const uint8_t *p, size_t n) {
    uint64_t crc = 0xFFFFFFFF;
    for (; n >= 8; p += 8, n -= 8) { uint64_t v; memcpy(&v, p, 8); crc = _mm_crc32_u64(crc, v); }
    for (; n; p++, n--) crc = _mm_crc32_u8((uint32_t)crc, *p);
    return (uint32_t)crc ^ 0xFFFFFFFF;
}
#endif
