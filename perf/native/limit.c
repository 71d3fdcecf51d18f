/* The machine's own limit: the least that any broker must do with the same requests, on one thread, with nothing else around it.
 *
 *   limit DIRECTORY BATCH_BYTES [PEM]      prints its port and how many batches can be fetched; serves until killed
 *
 * Produce (api key 0): receive the frame, CRC-32C over it (three interleaved streams of the CPU's instruction), write it to the page cache
 * with pwrite at the end of a growing file (fresh pages) whose disk space is reserved 4 MB ahead, answer a Produce version 7 reply with error 0.
 * Batches of lz4 and zstd are decompressed before that, each in one call of the codec's library into one buffer that is used again: their records
 * cannot be looked at without it, and no record is. The file is emptied when no connection is left, so outside of what is measured.
 * Fetch (api key 1): a Fetch version 11 reply header, then whole batches of a file, up to max_bytes, with sendfile. Two files are filled at start
 * with 256 MiB of empty batches of BATCH_BYTES that the load generator can walk, base offsets counting up by one. The second one is eight
 * partitions, an eighth of it each, and is read when the topic's name ends in 8: or eight consumers would find each other's pages in the CPU's
 * caches.
 * With a file of a key and its certificate all of it goes over TLS 1.3: SSL_read in place of recv, and SSL_write from the mapped file in place of
 * sendfile.
 * Frames up to 8 KB that one epoll_wait has found go into the file by one pwrite, and are answered after it (group append).
 * OffsetCommit (api key 8, version 7): parse, look the group up in a hash table, make OffsetCommitKey and OffsetCommitValue, note the offset in the
 * table. The commits that one epoll_wait has found become one record batch with its CRC-32C in one pwrite, and are answered after it (commits.h).
 * All groups share that file, which is emptied as the other. OffsetFetch (api key 9, version 5) reads the table.
 * No parsing beyond what the reply needs, no index, no locks. One recv and one send for a small request.
 *
 * A leader of replicated partitions and its followers are programs beside this one: leader.c, follower.c. perf/method.md says which mode is
 * beside which work.
 */
#define _GNU_SOURCE
#include <signal.h>
#include "append.h"
#include "commits.h"
#include "secure.h"
#include "serving.h"
#include <lz4frame.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <zstd.h>

enum { RECEIVE = 2 << 20, READABLE_FILE = 256 << 20, EVENTS = 1024, PARTS_OF_FILE = 8, DECOMPRESSED = 32 << 20, SMALL = 8 << 10 };
enum { PRODUCE = 0, OFFSET_COMMIT = 8, OFFSET_FETCH = 9, API_VERSIONS = 18, CODEC_MASK = 7, LZ4 = 3, ZSTD = 4 };

typedef struct {
    int fd;
    uint8_t *frame;
    size_t got;
    uint8_t header[256];
    size_t header_size, header_sent;
    int file;
    off_t file_at;
    size_t file_left;
    int waits_for_room;
    SSL *tls;
} client;

static growing_file produced, committed;
static int read_fd, parted_fd, poller, clients;
static uint64_t next_offset;
static volatile uint32_t checksum;
static size_t batch_size, batch_count;
/* The small frames of this turn, and who waits for their write. */
static uint8_t gathered[EVENTS * SMALL];
static size_t gathered_size;
static client *waiting[EVENTS];
static int waiting_count, alone;
static const uint8_t *read_map, *parted_map;

static uint32_t crc32c_cost(const uint8_t *p, size_t n) {
    /* Three streams hide the instruction's latency. The streams are not combined: this is the cost, not the value. */
    uint64_t a = 0, b = 0, c = 0;
    size_t third = n / 24 * 8;
    const uint8_t *q = p + third, *r = q + third, *end = p + third;
    for (; p < end; p += 8, q += 8, r += 8) {
        uint64_t x, y, z;
        memcpy(&x, p, 8); memcpy(&y, q, 8); memcpy(&z, r, 8);
        a = _mm_crc32_u64(a, x); b = _mm_crc32_u64(b, y); c = _mm_crc32_u64(c, z);
    }
    for (size_t i = 3 * third; i < n; i++) a = _mm_crc32_u8((uint32_t)a, p[i - third]);
    return (uint32_t)(a ^ b ^ c);
}

static void decompress(int codec, const uint8_t *p, size_t n) {
    static uint8_t *into;
    static LZ4F_dctx *lz4;
    static ZSTD_DCtx *zstd;
    if (into == NULL) {
        into = malloc(DECOMPRESSED);
        zstd = ZSTD_createDCtx();
        if (LZ4F_isError(LZ4F_createDecompressionContext(&lz4, LZ4F_VERSION))) fail("no lz4", 0);
    }
    if (codec == ZSTD) {
        size_t written = ZSTD_decompressDCtx(zstd, into, DECOMPRESSED, p, n);
        if (ZSTD_isError(written)) fail(ZSTD_getErrorName(written), (long long)n);
        return;
    }
    const LZ4F_decompressOptions_t stable = {.stableDst = 1};
    for (size_t at = 0, taken = n, left = 1; left; p += taken, n -= taken, taken = n) {
        size_t written = DECOMPRESSED - at;
        left = LZ4F_decompress(lz4, into + at, &written, p, &taken, &stable);
        if (LZ4F_isError(left) || (taken == 0 && written == 0)) fail("lz4 does not decompress", (long long)n);
        at += written;
    }
}

/* Batch by batch, those that are compressed. */
static void decompress_batches(const uint8_t *p, size_t n) {
    while (n > BATCH_HEADER) {
        size_t size = BATCH_LOG_OVERHEAD + (size_t)get32(p + BATCH_LENGTH_AT);
        int codec = get16(p + BATCH_ATTRIBUTES_AT) & CODEC_MASK;
        if (size > n) fail("a batch longer than the request", (long long)size);
        if (codec == LZ4 || codec == ZSTD) decompress(codec, p + BATCH_HEADER, size - BATCH_HEADER);
        p += size;
        n -= size;
    }
}

/* Watches for room in the socket only while a reply is stuck. */
static void wait_for_room(client *c, int wanted) {
    if (wanted == c->waits_for_room) return;
    c->waits_for_room = wanted;
    watch_socket(poller, EPOLL_CTL_MOD, c->fd, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, c);
}

/* The head and the first bytes of the file share a record. */
static void flush_secured(client *c) {
    static uint8_t record[SSL3_RT_MAX_PLAIN_LENGTH];
    while (c->header_sent < c->header_size || c->file_left) {
        size_t head = c->header_size - c->header_sent, rest = sizeof record - head;
        const uint8_t *from = (c->file == parted_fd ? parted_map : read_map) + c->file_at;
        if (rest > c->file_left) rest = c->file_left;
        if (head) {
            memcpy(record, c->header + c->header_sent, head);
            memcpy(record + head, from, rest);
        }
        ssize_t n = secure_write_to(c->tls, head ? record : from, head + rest);
        if (n <= 0) { wait_for_room(c, 1); return; }
        c->header_sent += (size_t)n < head ? (size_t)n : head;
        if ((size_t)n > head) { c->file_at += n - (ssize_t)head; c->file_left -= (size_t)n - head; }
    }
    wait_for_room(c, 0);
}

static void flush_reply(client *c) {
    if (c->tls) { flush_secured(c); return; }
    while (c->header_sent < c->header_size) {
        ssize_t n = send(c->fd, c->header + c->header_sent, c->header_size - c->header_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT | (c->file_left ? MSG_MORE : 0));
        if (n < 0) { wait_for_room(c, 1); return; }
        c->header_sent += (size_t)n;
    }
    while (c->file_left) {
        ssize_t n = sendfile(c->fd, c->file, &c->file_at, c->file_left);
        if (n <= 0) { wait_for_room(c, 1); return; }
        c->file_left -= (size_t)n;
    }
    wait_for_room(c, 0);
}

static void gather(client *c) { waiting[waiting_count++] = c; }

/* Gives the end of the reply, and whether it waits for the turn's write. */
static uint8_t *serve_produce(client *c, const uint8_t *f, size_t size, const uint8_t *body, uint8_t *w, int *gathers) {
    const uint8_t *p = body + 2 + 2 + 4 + 4;                 /* transactional id (null: 2 bytes), acks 2, timeout 4, count 4 */
    size_t topic = (size_t)get16(p);
    const uint8_t *records = p + 2 + topic + 4 + 4;          /* partitions, index */
    checksum ^= crc32c_cost(f, size);
    decompress_batches(records + 4, (size_t)get32(records));
    *gathers = !alone && size <= SMALL && c->tls == NULL;
    if (*gathers) {
        memcpy(gathered + gathered_size, f, size);
        gathered_size += size;
        gather(c);
    } else {
        append(&produced, f, size);
    }
    put32(w, 1); memcpy(w + 4, p, 2 + topic); w += 6 + topic;
    put32(w, 1); w += 4 + 4 + 2;                             /* partitions, index, error */
    put64(w, next_offset++); w += 8;                         /* base offset */
    put64(w, (uint64_t)-1); w += 16;                         /* append time, log start */
    return w + 4;                                            /* throttle */
}

static uint8_t *serve_fetch(client *c, const uint8_t *body, uint8_t *w) {
    const uint8_t *p = body + 12;
    uint32_t max_bytes = get32(p);
    p += 4 + 1 + 8 + 4;
    size_t topic = (size_t)get16(p);
    const uint8_t *partition = p + 2 + topic + 4;
    uint64_t offset = (uint64_t)get32(partition + 8) << 32 | get32(partition + 12);
    int parted = topic > 0 && p[1 + topic] == '8';
    size_t own = parted ? batch_count / PARTS_OF_FILE : batch_count, place = parted ? get32(partition) % PARTS_OF_FILE * own : 0;
    size_t first = (size_t)offset % own, whole = max_bytes / batch_size;
    if (whole < 1) whole = 1;
    if (first + whole > own) whole = own - first;
    w += 4 + 2 + 4;                                          /* throttle, error, session */
    put32(w, 1); memcpy(w + 4, p, 2 + topic); w += 6 + topic;
    put32(w, 1); memcpy(w + 4, partition, 4); w += 8 + 2;
    put64(w, own); put64(w + 8, own); w += 24;
    put32(w, (uint32_t)-1); put32(w + 4, (uint32_t)-1); w += 8;
    c->file_at = (off_t)((place + first) * batch_size);
    c->file = parted ? parted_fd : read_fd;
    c->file_left = whole * batch_size;
    put32(w, (uint32_t)c->file_left);
    return w + 4;
}

static void settle(void) {
    if (waiting_count == 0) return;
    if (gathered_size) append(&produced, gathered, gathered_size);
    append_commits(&committed);
    for (int i = 0; i < waiting_count; i++) flush_reply(waiting[i]);
    gathered_size = 0;
    waiting_count = 0;
}

static void serve(client *c, size_t size) {
    const uint8_t *f = c->frame + FRAME_SIZE, *body = f + 10 + (size_t)get16(f + 8);     /* behind the client id */
    const cursor fields = {body, f + size};
    int gathers = 0;
    uint8_t *h = c->header, *w = h + 8;
    memset(h, 0, sizeof c->header);
    memcpy(h + 4, f + CORRELATION_AT, 4);
    c->file_left = 0;
    switch (f[API_KEY_AT + 1]) {
    case API_VERSIONS:                                       /* version 0: no error, no API */
        w += 2 + 4;
        break;
    case PRODUCE:
        w = serve_produce(c, f, size, body, w, &gathers);
        break;
    case OFFSET_COMMIT:
        gather(c);
        gathers = 1;
        w = commit_offsets(fields, w, h + sizeof c->header);
        break;
    case OFFSET_FETCH:
        settle();                                            /* nobody reads an offset that is not in the file */
        w = fetch_offsets(fields, w, h + sizeof c->header);
        break;
    default:
        w = serve_fetch(c, body, w);
    }
    c->header_size = (size_t)(w - h);
    put32(h, (uint32_t)(c->header_size - FRAME_SIZE + c->file_left));
    c->header_sent = 0;
    if (!gathers) flush_reply(c);
}

/* Between two measurements. */
static void empty_files(void) {
    empty_file(&produced);
    empty_file(&committed);
    commit_base_offset = 0;
}

static void readable(client *c) {
    for (;;) {
        ssize_t n = c->tls ? secure_read_from(c->tls, c->frame + c->got, RECEIVE - c->got)
                           : recv(c->fd, c->frame + c->got, RECEIVE - c->got, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            SSL_free(c->tls);
            close(c->fd);
            free(c->frame);
            free(c);
            if (--clients == 0) empty_files();
            return;
        }
        c->got += (size_t)n;
        if (c->got >= FRAME_SIZE && c->got >= FRAME_SIZE + (size_t)get32(c->frame)) {
            c->got = 0;
            serve(c, get32(c->frame));
            if (c->tls == NULL || !SSL_has_pending(c->tls)) return;
        }
    }
}

int main(int argc, char **argv) {
    program = "limit";
    if (argc != 3 && argc != 4) fail("usage: limit DIRECTORY BATCH_BYTES [PEM]", argc);
    if (argc == 4) {
        secure_start(TLS_server_method());
        if (SSL_CTX_use_certificate_chain_file(secure_context, argv[3]) != 1 ||
            SSL_CTX_use_PrivateKey_file(secure_context, argv[3], SSL_FILETYPE_PEM) != 1)
            fail("no key or certificate in the file", 0);
        SSL_CTX_set_num_tickets(secure_context, 1);
    }
    batch_size = (size_t)atol(argv[2]);
    if (batch_size < BATCH_HEADER) fail("impossible batch size", (long long)batch_size);
    produced.fd = open_file(argv[1], "produced");
    committed.fd = open_file(argv[1], "committed");
    read_fd = open_file(argv[1], "fetched");
    parted_fd = open_file(argv[1], "fetched8");
    batch_count = READABLE_FILE / batch_size;
    uint8_t *batch = calloc(1, batch_size);
    put32(batch + BATCH_LENGTH_AT, (uint32_t)(batch_size - BATCH_LOG_OVERHEAD));
    batch[BATCH_MAGIC_AT] = 2;
    for (size_t i = 0; i < batch_count; i++) {
        put64(batch, i);
        if (pwrite(read_fd, batch, batch_size, (off_t)(i * batch_size)) != (ssize_t)batch_size) fail("cannot write", errno);
        put64(batch, i % (batch_count / PARTS_OF_FILE));
        if (pwrite(parted_fd, batch, batch_size, (off_t)(i * batch_size)) != (ssize_t)batch_size) fail("cannot write", errno);
    }
    read_map = mmap(NULL, batch_count * batch_size, PROT_READ, MAP_SHARED, read_fd, 0);
    parted_map = mmap(NULL, batch_count * batch_size, PROT_READ, MAP_SHARED, parted_fd, 0);
    if (read_map == MAP_FAILED || parted_map == MAP_FAILED) fail("cannot map the files", errno);
    int port, listener = listen_anywhere(&port);
    printf("%d %zu\n", port, batch_count);
    fflush(stdout);
    poller = epoll_create1(0);
    struct epoll_event events[EVENTS];
    watch_socket(poller, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    for (;;) {
        int n = epoll_wait(poller, events, EVENTS, -1);
        alone = n == 1;
        for (int i = 0; i < n; i++) {
            client *c = events[i].data.ptr;
            if (c == NULL) {
                c = calloc(1, sizeof *c);
                c->fd = accept_connection(listener);
                if (argc == 4) {
                    fcntl(c->fd, F_SETFL, O_NONBLOCK);
                    c->tls = secure_connection(c->fd, 1);
                }
                c->frame = malloc(RECEIVE);
                watch_socket(poller, EPOLL_CTL_ADD, c->fd, EPOLLIN, c);
                clients++;
                continue;
            }
            if (events[i].events & EPOLLOUT) flush_reply(c);
            if (events[i].events & EPOLLIN) readable(c);
        }
        settle();
    }
}
