/* The limit of a leader of replicated partitions: one thread, two followers (follower.c with --replica 1 and 2), nothing else around it.
 *
 *   leader DIRECTORY PARTITIONS            prints its port; serves until killed
 *
 * Produce (api key 0, version 7, acks=all, one batch for one partition): receive the frame, CRC-32C of the batch (the value, in three streams of
 * the CPU's instruction), set its base offset, write it to the page cache with pwrite at the end of the partition's file DIRECTORY/<partition>,
 * whose disk space is reserved 4 MB ahead. Batches up to 8 KB that one epoll_wait has found share one write for each partition. The reply waits
 * until both followers have asked for what is behind the batch.
 * Fetch (api key 1, version 11, without session): whole batches from the offset on with sendfile, of partitions that have any, as the incremental
 * replies of a fetch session. Replicas get all, consumers (-1) up to the high watermark, which is the smaller one of the followers' offsets. The
 * reply is made when all that one epoll_wait has found is in the files. A request that finds nothing waits; no reply is empty.
 * Binary search among all batches, in memory, finds the place of an offset. No parsing beyond that, no metadata, no locks, no ISR: a follower that
 * is gone is waited for.
 */
#define _GNU_SOURCE
#include "append.h"
#include "checksum.h"
#include "fields.h"
#include "serving.h"
#include <sys/sendfile.h>

enum { PRODUCE, FETCH, FOLLOWERS = 2, EVENTS = 1024, RECEIVE = 2 << 20, SMALL = 8 << 10, GATHERED = EVENTS * SMALL, NAME = 300, PER_PARTITION = 50 };

typedef struct { int64_t offset; off_t at; } boundary;            /* where a batch begins, or the log ends */

typedef struct { size_t head_end; int file; off_t at; size_t left; } piece;

typedef struct client {
    int fd;
    uint8_t *frame;
    size_t got;
    uint8_t *header;              /* of all pieces */
    size_t header_size, header_sent;
    piece *pieces;                /* of the reply: bytes of the header up to head_end, then of the file */
    int piece_count, piece_now;
    int waits_for_room;
    int64_t wanted;               /* the high watermark that its reply waits for */
    struct client *next;
} client;

typedef struct {
    growing_file file;
    int64_t end, high_watermark, replicated[FOLLOWERS];
    boundary *boundaries;
    size_t count, room;
    uint8_t *gathered;            /* small batches of this turn */
    size_t gathered_size;
    client *first, **last;        /* who waits for the high watermark, in the order of their offsets */
} partition;

static partition *partitions;
static int partition_count, poller, fetching, changed;
static client *fetchers[EVENTS];                                  /* who waits for data */

/* --- replies --- */

static void wait_for_room(client *c, int wanted) {
    if (wanted == c->waits_for_room) return;
    c->waits_for_room = wanted;
    watch_socket(poller, EPOLL_CTL_MOD, c->fd, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, c);
}

static void flush_reply(client *c) {
    for (; c->piece_now < c->piece_count; c->piece_now++) {
        piece *now = &c->pieces[c->piece_now];
        int more = now->left || c->piece_now + 1 < c->piece_count ? MSG_MORE : 0;
        while (c->header_sent < now->head_end) {
            ssize_t n = send(c->fd, c->header + c->header_sent, now->head_end - c->header_sent, MSG_NOSIGNAL | MSG_DONTWAIT | more);
            if (n < 0) { wait_for_room(c, 1); return; }
            c->header_sent += (size_t)n;
        }
        while (now->left) {
            ssize_t n = sendfile(c->fd, now->file, &now->at, now->left);
            if (n <= 0) { wait_for_room(c, 1); return; }
            now->left -= (size_t)n;
        }
    }
    wait_for_room(c, 0);
}

static void reply(client *c, size_t in_files) {
    put32(c->header, (uint32_t)(c->header_size - FRAME_SIZE + in_files));
    memcpy(c->header + FRAME_SIZE, c->frame + FRAME_SIZE + CORRELATION_AT, 4);
    c->header_sent = 0;
    c->piece_now = 0;
    flush_reply(c);
}

/* --- the log --- */

static void note_boundary(partition *p, off_t at) {
    if (p->count == p->room) {
        p->room = p->room * 2 + 1024;
        if ((p->boundaries = realloc(p->boundaries, p->room * sizeof *p->boundaries)) == NULL) fail("no memory", (long long)p->room);
    }
    p->boundaries[p->count++] = (boundary){p->end, at};
}

static void write_gathered(partition *p) {
    if (p->gathered_size == 0) return;
    append(&p->file, p->gathered, p->gathered_size);
    p->gathered_size = 0;
}

static void append_batch(partition *p, uint8_t *batch, size_t size) {
    put64(batch, (uint64_t)p->end);
    put32(batch + 12, 0);                                         /* leader epoch */
    if (checked_batch(batch, size, p->end) != size) fail("not one whole batch", (long long)size);
    p->end += (int64_t)get32(batch + BATCH_LAST_DELTA_AT) + 1;
    if (size <= SMALL) {
        if (p->gathered == NULL && (p->gathered = malloc(GATHERED)) == NULL) fail("no memory", GATHERED);
        if (p->gathered_size + size > GATHERED) write_gathered(p);
        memcpy(p->gathered + p->gathered_size, batch, size);
        p->gathered_size += size;
        note_boundary(p, p->file.end + (off_t)p->gathered_size);
    } else {
        write_gathered(p);
        append(&p->file, batch, size);
        note_boundary(p, p->file.end);
    }
    changed = 1;
}

/* The last boundary up to an offset. */
static size_t boundary_at(const partition *p, int64_t offset) {
    size_t low = 0, high = p->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (p->boundaries[middle].offset <= offset) low = middle; else high = middle;
    }
    if (p->boundaries[low].offset != offset) fail("no batch begins at offset", offset);
    return low;
}

/* Of at least one batch, and of as many as fit; gives their bytes. */
static size_t range_of(const partition *p, int64_t from, int64_t to, size_t most, off_t *at) {
    size_t first = boundary_at(p, from), low = first + 1, high = boundary_at(p, to) + 1;
    *at = p->boundaries[first].at;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if ((size_t)(p->boundaries[middle].at - *at) <= most) low = middle; else high = middle;
    }
    return (size_t)(p->boundaries[low].at - *at);
}

/* --- requests --- */

static partition *partition_of(int32_t index) {
    if (index < 0 || index >= partition_count) fail("no such partition", index);
    return &partitions[index];
}

static void serve_produce(client *c, cursor r) {
    take16(&r);                                                   /* no transactional id */
    int16_t acks = take16(&r);
    if (acks != -1) fail("a Produce request without acks=all", acks);
    take32(&r);                                                   /* timeout */
    int32_t topics = take32(&r);
    int16_t name = take16(&r);
    const uint8_t *topic = take(&r, name);
    int32_t count = take32(&r), index = take32(&r), size = take32(&r);
    if (topics != 1 || count != 1 || name > NAME) fail("a Produce request of more than one batch", count);
    partition *p = partition_of(index);
    int64_t base = p->end;
    append_batch(p, c->frame + (take(&r, size) - c->frame), (size_t)size);
    uint8_t *w = c->header + FRAME_SIZE + 4;
    put32(w, 1); w[4] = (uint8_t)(name >> 8); w[5] = (uint8_t)name; memcpy(w + 6, topic, (size_t)name); w += 6 + name;
    put32(w, 1); put32(w + 4, (uint32_t)index); w[8] = w[9] = 0; w += 10;
    put64(w, (uint64_t)base); put64(w + 8, (uint64_t)-1); put64(w + 16, 0); w += 24;
    put32(w, 0); w += 4;                                          /* throttle time */
    c->header_size = (size_t)(w - c->header);
    c->pieces[0] = (piece){.head_end = c->header_size};
    c->piece_count = 1;
    c->wanted = p->end;
    c->next = NULL;
    *p->last = c;
    p->last = &c->next;
}

static void answer_producers(partition *p) {
    while (p->first && p->first->wanted <= p->high_watermark) {
        client *c = p->first;
        p->first = c->next;
        if (p->first == NULL) p->last = &p->first;
        reply(c, 0);
    }
}

static void replicated_up_to(partition *p, int follower, int64_t offset) {
    p->replicated[follower] = offset;
    int64_t watermark = p->replicated[0] < p->replicated[1] ? p->replicated[0] : p->replicated[1];
    if (watermark <= p->high_watermark) return;
    p->high_watermark = watermark;
    changed = 1;
}

typedef struct {
    cursor left;                  /* of the request */
    int32_t replica, partitions;
    int64_t room;                 /* in the reply */
    int16_t name;
    const uint8_t *topic;
} fetch;

static fetch read_fetch(const client *c) {
    fetch f = {.left = {c->frame + FRAME_SIZE + 8, c->frame + FRAME_SIZE + get32(c->frame)}};
    cursor *r = &f.left;
    take(r, take16(r));                                           /* client id */
    f.replica = take32(r);
    take(r, 4 + 4);                                               /* wait, least bytes */
    f.room = take32(r);
    take(r, 1 + 4 + 4);                                           /* isolation, session */
    if (take32(r) != 1 || f.replica > FOLLOWERS || f.replica == 0) fail("a Fetch request of another replica", f.replica);
    f.name = take16(r);
    f.topic = take(r, f.name);
    if (f.name > NAME) fail("a long name", f.name);
    f.partitions = take32(r);
    return f;
}

static partition *next_partition(fetch *f, int32_t *index, int64_t *offset, int32_t *most) {
    *index = take32(&f->left);
    take32(&f->left);                                             /* leader epoch */
    *offset = take64(&f->left);
    take64(&f->left);                                             /* log start offset */
    *most = take32(&f->left);
    return partition_of(*index);
}

/* What a follower asks for says what it has. The reply is for the end of the turn. */
static void serve_fetch(client *c) {
    fetch f = read_fetch(c);
    int32_t index, most;
    int64_t offset;
    for (; f.replica > 0 && f.partitions > 0; f.partitions--) {
        partition *p = next_partition(&f, &index, &offset, &most);
        replicated_up_to(p, f.replica - 1, offset);
    }
    if (fetching == EVENTS) fail("too many wait for data", fetching);
    fetchers[fetching++] = c;
    changed = 1;
}

/* Whether there was something. */
static int answer_fetch(client *c) {
    fetch f = read_fetch(c);
    int32_t index, most, with_data = 0;
    int64_t offset;
    size_t in_files = 0;
    uint8_t *w = c->header + FRAME_SIZE + 4, *count_at;
    memset(w, 0, 4 + 2 + 4); w += 10;                             /* throttle time, error, session */
    put32(w, 1); w[4] = (uint8_t)(f.name >> 8); w[5] = (uint8_t)f.name; memcpy(w + 6, f.topic, (size_t)f.name); w += 6 + f.name;
    count_at = w;
    w += 4;
    for (; f.partitions > 0; f.partitions--) {
        partition *p = next_partition(&f, &index, &offset, &most);
        int64_t end = f.replica > 0 ? p->end : p->high_watermark;
        if (offset >= end || f.room <= 0) continue;
        piece *to = &c->pieces[with_data++];
        to->left = range_of(p, offset, end, (size_t)(most < f.room ? most : f.room), &to->at);
        to->file = p->file.fd;
        f.room -= (int64_t)to->left;
        in_files += to->left;
        put32(w, (uint32_t)index); w[4] = w[5] = 0; w += 6;
        put64(w, (uint64_t)p->high_watermark); put64(w + 8, (uint64_t)p->high_watermark); put64(w + 16, 0); w += 24;
        put32(w, (uint32_t)-1); put32(w + 4, (uint32_t)-1); put32(w + 8, (uint32_t)to->left); w += 12;
        to->head_end = (size_t)(w - c->header);
    }
    if (with_data == 0) return 0;
    put32(count_at, (uint32_t)with_data);
    c->piece_count = with_data;
    c->header_size = (size_t)(w - c->header);
    reply(c, in_files);
    return 1;
}

static void serve(client *c) {
    const uint8_t *f = c->frame + FRAME_SIZE;
    cursor r = {f + 8, f + get32(c->frame)};
    take(&r, take16(&r));
    switch (f[API_KEY_AT + 1]) {
    case PRODUCE: serve_produce(c, r); break;
    case FETCH: serve_fetch(c); break;
    default: fail("an API that is not served", f[API_KEY_AT + 1]);
    }
}

/* The end of a turn: small batches are written, producers whose batches both followers have are answered, then whoever waits for data. */
static void settle(void) {
    if (!changed) return;
    changed = 0;
    for (int i = 0; i < partition_count; i++) {
        write_gathered(&partitions[i]);
        answer_producers(&partitions[i]);
    }
    int still = 0;
    for (int i = 0; i < fetching; i++)
        if (!answer_fetch(fetchers[i])) fetchers[still++] = fetchers[i];
    fetching = still;
}

static void leave(client *c) {
    int still = 0;
    for (int i = 0; i < fetching; i++)
        if (fetchers[i] != c) fetchers[still++] = fetchers[i];
    fetching = still;
    for (int i = 0; i < partition_count; i++)
        for (const client *waiting = partitions[i].first; waiting; waiting = waiting->next)
            if (waiting == c) fail("a producer closed before its reply", c->fd);
    close(c->fd);
    free(c->frame);
    free(c->header);
    free(c->pieces);
    free(c);
}

static void readable(client *c) {
    ssize_t n = recv(c->fd, c->frame + c->got, RECEIVE - c->got, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        leave(c);
        return;
    }
    c->got += (size_t)n;
    if (c->got < FRAME_SIZE || c->got < FRAME_SIZE + (size_t)get32(c->frame)) return;
    c->got = 0;
    serve(c);
}

static void welcome(int listener) {
    client *c = calloc(1, sizeof *c);
    c->fd = accept_connection(listener);
    c->frame = malloc(RECEIVE);
    c->header = malloc(NAME + 64 + (size_t)partition_count * PER_PARTITION);
    c->pieces = malloc((size_t)partition_count * sizeof *c->pieces);
    watch_socket(poller, EPOLL_CTL_ADD, c->fd, EPOLLIN, c);
}

int main(int argc, char **argv) {
    program = "leader";
    if (argc != 3 || (partition_count = atoi(argv[2])) < 1) fail("usage: leader DIRECTORY PARTITIONS", argc);
    checksum_start();
    partitions = calloc((size_t)partition_count, sizeof *partitions);
    for (int i = 0; i < partition_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        partitions[i].file.fd = open_file(argv[1], name);
        partitions[i].last = &partitions[i].first;
        note_boundary(&partitions[i], 0);
    }
    int port, listener = listen_anywhere(&port);
    printf("%d\n", port);
    fflush(stdout);
    poller = epoll_create1(0);
    watch_socket(poller, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            client *c = events[i].data.ptr;
            if (c == NULL) { welcome(listener); continue; }
            if (events[i].events & EPOLLOUT) flush_reply(c);
            if (events[i].events & ~(uint32_t)EPOLLOUT) readable(c);
        }
        settle();
    }
}
