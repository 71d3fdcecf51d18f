/* A neutral load generator: pre-encoded Produce and Fetch requests over raw sockets, every reply checked.
 *
 *   load produce PORT CONNECTIONS SECONDS RATE TOPIC FRAME_FILE [FRAME_FILE ...]
 *   load fetch   PORT CONNECTIONS SECONDS RATE TOPIC PARTITIONS END_OFFSET MAX_BYTES
 *
 * Produce: FRAME_FILE holds one Produce version 7 request without frame size; connection i sends file i mod n over and over, one request in
 * flight; only the correlation id is patched. The reply's error code must be 0.
 * Fetch: version 11 without session, one partition a request; connection i reads partition i mod PARTITIONS from offset 0 on and starts over at
 * END_OFFSET. Every batch header is walked; its base offset must be the one expected.
 * RATE is in requests per second over all connections, 0 for as fast as replies come. With a rate, latency counts from the time a request was due.
 *
 * Prints one JSON object: requests, bytes, seconds, cpu_seconds (its own), latency_us {p50, p90, p99, p999, max}. Any wrong reply ends it with exit code 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCE_VERSION = 7, FETCH_VERSION = 11, BUCKETS = 64 * 64, RECEIVE = 4 << 20 };

typedef struct {
    int fd;
    uint8_t *request;      /* frame size and frame */
    size_t request_size, sent;
    uint8_t *reply;
    size_t reply_capacity, got;
    int32_t correlation;
    int64_t due_ns;
    int partition;
    int64_t offset;        /* fetch: next offset wanted */
    size_t offset_at;      /* fetch: where the offset stands in the request */
    int busy;
} connection;

static uint64_t histogram[BUCKETS];
static uint64_t requests, reply_bytes, record_bytes;
static int64_t worst_ns;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fail(const char *what, int64_t detail) {
    fprintf(stderr, "load: %s (%lld)\n", what, (long long)detail);
    exit(1);
}

static void put32(uint8_t *p, uint32_t v) { v = htonl(v); memcpy(p, &v, 4); }
static void put64(uint8_t *p, uint64_t v) { put32(p, (uint32_t)(v >> 32)); put32(p + 4, (uint32_t)v); }
static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return ntohl(v); }
static uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }
static int16_t get16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }

/* Buckets of 1/64 of a power of two, from 1 us on: an error of at most 1.6 %. */
static void count_latency(int64_t ns) {
    uint64_t us10 = (uint64_t)ns / 100 + 1;
    int power = 63 - __builtin_clzll(us10);
    int part = power >= 6 ? (int)(us10 >> (power - 6)) & 63 : (int)(us10 << (6 - power)) & 63;
    histogram[power * 64 + part]++;
    if (ns > worst_ns) worst_ns = ns;
}

static double percentile(double share) {
    uint64_t left = (uint64_t)(share * (double)requests);
    for (int i = 0; i < BUCKETS; i++) {
        if (histogram[i] > left) {
            int power = i / 64, part = i & 63;
            return (double)(1ULL << power) * (1.0 + part / 64.0) / 10.0;
        }
        left -= histogram[i];
    }
    return (double)worst_ns / 1000.0;
}

static int connect_to(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0) fail("cannot connect to the port", port);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void load_frame(connection *c, const char *path) {
    struct stat info;
    FILE *in = fopen(path, "rb");
    if (in == NULL || fstat(fileno(in), &info) != 0) fail("cannot read a frame file", errno);
    c->request_size = 4 + (size_t)info.st_size;
    c->request = malloc(c->request_size);
    put32(c->request, (uint32_t)info.st_size);
    if (fread(c->request + 4, 1, (size_t)info.st_size, in) != (size_t)info.st_size) fail("short frame file", errno);
    fclose(in);
}

static void build_fetch(connection *c, const char *topic, int max_bytes) {
    size_t n = strlen(topic);
    uint8_t *p = c->request = calloc(1, 256 + n);
    p += 4;
    p[1] = 1; p[3] = FETCH_VERSION; p += 8;               /* key, version, correlation */
    p[1] = 4; memcpy(p + 2, "load", 4); p += 6;           /* client id */
    put32(p, (uint32_t)-1); put32(p + 4, 500); put32(p + 8, 1); put32(p + 12, (uint32_t)max_bytes); p += 16;
    *p++ = 0;                                             /* isolation */
    put32(p, 0); put32(p + 4, (uint32_t)-1); p += 8;      /* no session */
    put32(p, 1); p += 4;
    p[0] = (uint8_t)(n >> 8); p[1] = (uint8_t)n; memcpy(p + 2, topic, n); p += 2 + n;
    put32(p, 1); put32(p + 4, (uint32_t)c->partition); put32(p + 8, (uint32_t)-1); p += 12;
    c->offset_at = (size_t)(p - c->request); p += 8;
    put64(p, (uint64_t)-1); put32(p + 8, (uint32_t)max_bytes); p += 12;
    put32(p, 0); p += 4;                                  /* forgotten topics */
    p += 2;                                               /* rack "" */
    c->request_size = (size_t)(p - c->request);
    put32(c->request, (uint32_t)(c->request_size - 4));
}

static void start_request(connection *c, int64_t due) {
    c->due_ns = due;
    c->sent = c->got = 0;
    c->busy = 1;
    put32(c->request + 8, (uint32_t)++c->correlation);
    if (c->offset_at) put64(c->request + c->offset_at, (uint64_t)c->offset);
}

static void push(connection *c) {
    while (c->sent < c->request_size) {
        ssize_t n = send(c->fd, c->request + c->sent, c->request_size - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EAGAIN) return;
            fail("send failed", errno);
        }
        c->sent += (size_t)n;
    }
}

static void check_produce(const connection *c, size_t size) {
    const uint8_t *p = c->reply + 4;
    size_t topic = (size_t)get16(p + 8);
    if (size < 4 + 4 + 2 + topic + 4 + 4 + 2) fail("short produce reply", (int64_t)size);
    p += 4 + 4 + 2 + topic + 4 + 4;
    if (get16(p) != 0) fail("produce error code", get16(p));
    record_bytes += c->request_size;
}

static void check_fetch(connection *c, size_t size, int64_t end_offset) {
    const uint8_t *p = c->reply + 4, *end = p + size;
    if (get16(p + 8) != 0) fail("fetch error code", get16(p + 8));
    p += 4 + 4 + 2 + 4 + 4;
    p += 2 + get16(p) + 4 + 4;
    if (get16(p) != 0) fail("fetch partition error code", get16(p));
    p += 2 + 8 + 8 + 8;
    int32_t aborted = (int32_t)get32(p);
    p += 4 + (aborted > 0 ? aborted * 16 : 0) + 4;
    int32_t length = (int32_t)get32(p);
    p += 4;
    if (length < 0 || p + length > end) fail("fetch records length", length);
    record_bytes += (uint64_t)length;
    int64_t before = c->offset;
    while (end - p >= 61) {
        int64_t whole = 12 + (int64_t)get32(p + 8);
        if (end - p < whole) break;
        int64_t base = (int64_t)get64(p), last = base + get32(p + 23);
        if (p[16] != 2 || base > c->offset || last < c->offset) fail("fetched a batch that was not asked for", base);
        c->offset = last + 1;
        p += whole;
    }
    if (c->offset == before) fail("fetch brought nothing at offset", before);
    if (c->offset >= end_offset) c->offset = 0;
}

/* 1 when the reply is whole. */
static int pull(connection *c) {
    for (;;) {
        size_t want = c->reply_capacity - c->got;
        ssize_t n = recv(c->fd, c->reply + c->got, want, MSG_DONTWAIT);
        if (n == 0) fail("the broker closed the connection", requests);
        if (n < 0) {
            if (errno == EAGAIN) return 0;
            fail("recv failed", errno);
        }
        c->got += (size_t)n;
        if (c->got < 4) continue;
        size_t size = get32(c->reply);
        if (size + 4 > c->reply_capacity) {
            c->reply_capacity = size + 4;
            c->reply = realloc(c->reply, c->reply_capacity);
        }
        if (c->got == size + 4) {
            if ((int32_t)get32(c->reply + 4) != c->correlation) fail("wrong correlation id", get32(c->reply + 4));
            return 1;
        }
        if (c->got > size + 4) fail("bytes after the reply", (int64_t)c->got);
    }
}

int main(int argc, char **argv) {
    if (argc < 8) fail("usage: see the head of load.c", argc);
    int fetch = strcmp(argv[1], "fetch") == 0;
    int port = atoi(argv[2]), count = atoi(argv[3]);
    double seconds = atof(argv[4]), rate = atof(argv[5]);
    const char *topic = argv[6];
    int64_t end_offset = fetch ? atoll(argv[8]) : 0;
    connection *all = calloc((size_t)count, sizeof *all);
    int poller = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        connection *c = &all[i];
        c->fd = connect_to(port);
        c->reply_capacity = fetch ? RECEIVE : 4096;
        c->reply = malloc(c->reply_capacity);
        if (fetch) {
            c->partition = i % atoi(argv[7]);
            build_fetch(c, topic, atoi(argv[9]));
        } else {
            load_frame(c, argv[7 + i % (argc - 7)]);
        }
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
    }
    int64_t start = now_ns(), stop = start + (int64_t)(seconds * 1e9), interval = rate > 0 ? (int64_t)(1e9 / rate) : 0, due = start;
    int free_count = count, *free_list = malloc(sizeof(int) * (size_t)count);
    for (int i = 0; i < count; i++) free_list[i] = count - 1 - i;
    struct epoll_event events[512];
    int in_flight = 0;
    for (;;) {
        int64_t now = now_ns();
        while (free_count > 0 && now < stop && (interval == 0 || due <= now)) {
            connection *c = &all[free_list[--free_count]];
            start_request(c, interval ? due : now);
            due += interval;
            in_flight++;
            push(c);
            if (c->sent < c->request_size) {
                struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = (uint32_t)(c - all)};
                epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
            }
        }
        if (now >= stop && in_flight == 0) break;
        if (now >= stop + 30000000000LL) fail("replies missing 30 s after the end", in_flight);
        int wait = 100;
        if (interval && free_count > 0) wait = due > now ? (int)((due - now) / 1000000) : 0;
        int n = epoll_wait(poller, events, 512, wait);
        for (int i = 0; i < n; i++) {
            connection *c = &all[events[i].data.u32];
            if (events[i].events & EPOLLOUT) {
                push(c);
                if (c->sent == c->request_size) {
                    struct epoll_event event = {.events = EPOLLIN, .data.u32 = events[i].data.u32};
                    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
                }
            }
            if (!(events[i].events & ~EPOLLOUT) || !pull(c)) continue;
            size_t size = get32(c->reply);
            if (fetch) check_fetch(c, size, end_offset);
            else check_produce(c, size);
            requests++;
            reply_bytes += size + 4;
            count_latency(now_ns() - c->due_ns);
            c->busy = 0;
            in_flight--;
            free_list[free_count++] = (int)(c - all);
        }
    }
    double elapsed = (double)(now_ns() - start) / 1e9;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"requests\": %llu, \"record_bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"latency_us\": "
           "{\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}}\n",
           (unsigned long long)requests, (unsigned long long)record_bytes, elapsed,
           (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6,
           percentile(0.5), percentile(0.9), percentile(0.99), percentile(0.999), (double)worst_ns / 1000.0);
    return 0;
}
