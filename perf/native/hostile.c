/* Sends spoiled requests as fast as a broker takes them, many behind one another on each connection.
 *
 *   hostile --port N --corpus FILE --seed S [--frames N] [--native PERCENT (50)] [--connections N (32)] [--behind N (32)]
 *           [--pid N (of the broker)]
 *   hostile --corpus FILE --seed S [--native PERCENT] --show N
 *
 * The corpus is made by tests/fuzz/corpus.py: for each valid frame its size (u32), flags (u8: its names and counts are kept; the data plane
 * decodes it by itself), the number of its marks (u16), its bytes, then the marks: place (u32), size of what is there (u16) and kind (u8).
 * --native says how many of a hundred frames are of those that the data plane decodes by itself.
 * Frame n depends on the corpus, the seed, --native and n only: --show prints it in hexadecimal.
 *
 * Only frames that the broker has decoded count: those it answered, those before an answered one on the same connection (which ask for no
 * answer), and the first unanswered one of a connection that the broker closed. What was behind that one is sent again on a new connection.
 * A connection whose first frame is held back (a Fetch that waits) is closed after a while; that frame is "held" and does not count.
 * Ends with 1 when no frame was decoded for 60 seconds, or when connections are refused. Prints one JSON object; "apis" has, by
 * API key, how many frames were decoded and how many of these were answered.
 */
#define _GNU_SOURCE
#include "wire.h"
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>

enum {
    LARGEST = 1 << 16, MOST = 512, MOST_BEHIND = 256, HELD_NS = 200 * 1000 * 1000, STALLED_S = 60,
    FIXED = 1, UVARINT = 2, RECORDS = 3, KEPT = 4, TEXT = 5, NUMBER = 6,
    IS_BOUNDED = 1, IS_NATIVE = 2, API_KEYS = 128
};

typedef struct { uint32_t at; uint16_t size; uint8_t kind; } mark;
typedef struct { uint8_t *bytes; uint32_t size; mark *marks; uint16_t marked; bool bounded; } sample;
typedef struct {
    int fd;
    uint64_t waiting[MOST_BEHIND];  /* numbers of frames that were not decoded yet, the oldest first */
    int count, sent;                /* of those; the first `sent` of them are written, or partly written */
    uint8_t *out;
    size_t out_at, out_size, out_room;
    uint8_t head[8];
    int head_got;
    uint64_t skip;
    int64_t since;
} hostile;

typedef struct { sample *of; uint32_t count; } set;

static set sets[2];  /* of what Python decodes, and of what the data plane decodes by itself */
static uint32_t native_percent = 50;
static uint64_t decoded_of[API_KEYS], answered_of[API_KEYS];
static uint64_t seed, next_frame, decoded, answered, refused, held, reconnects;
static int port, behind = 32, poller;
static int64_t now, last_decoded;

static uint64_t mix(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static uint32_t below(uint64_t *state, uint32_t bound) { return (uint32_t)((mix(state) >> 32) * bound >> 32); }

static const uint64_t INTERESTING[] = {
    0, 1, 2, 0xFFFFFFFFFFFFFFFFu, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1000000, 1000001, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000u,
    0xFFFFFFFFu, 0x7FFFFFFFFFFFFFFFu, 0x8000000000000000u};
static uint64_t interesting(uint64_t *r) { return INTERESTING[below(r, sizeof INTERESTING / sizeof *INTERESTING)]; }

static void put_number(uint8_t *at, int size, uint64_t value) {
    for (int i = size; i-- > 0; value >>= 8) at[i] = (uint8_t)value;
}

/* Takes `old` bytes out at `at` and puts `size` others there; `data` has room for LARGEST. */
static void replace(uint8_t *data, uint32_t *used, uint32_t at, uint32_t old, const uint8_t *piece, uint32_t size) {
    if (at > *used) return;
    if (old > *used - at) old = *used - at;
    if (*used - old + size > LARGEST) return;
    memmove(data + at + size, data + at + old, *used - at - old);
    memcpy(data + at, piece, size);
    *used += size - old;
}

/* A batch that lies, below a checksum that is mostly right. */
static void spoil_batch(uint64_t *r, uint8_t *batch, uint32_t size) {
    static const struct { uint8_t at, size; } FIELDS[] = {
        {0, 8}, {8, 4}, {12, 4}, {16, 1}, {21, 2}, {23, 4}, {27, 8}, {35, 8}, {43, 8}, {51, 2}, {53, 4}, {57, 4}};
    bool whole = size >= BATCH_HEADER && batch[BATCH_MAGIC_AT] == 2;
    for (uint32_t times = 1 + below(r, 2); times; times--) {
        uint32_t kind = below(r, 6);
        if (whole && kind < 2) {
            uint32_t field = below(r, sizeof FIELDS / sizeof *FIELDS);
            put_number(batch + FIELDS[field].at, FIELDS[field].size, interesting(r));
        } else if (whole && kind == 2) batch[22] ^= (uint8_t)(1 << below(r, 7));
        else if (whole && kind == 3) put32(batch + 57, get32(batch + 57) + below(r, 5) - 2);
        else if (whole && size > BATCH_HEADER) batch[BATCH_HEADER + below(r, size - BATCH_HEADER)] = (uint8_t)mix(r);
        else batch[below(r, size)] ^= (uint8_t)(1 << below(r, 8));
    }
    if (whole && below(r, 10)) put32(batch + BATCH_CRC_AT, crc32c(batch + BATCH_ATTRIBUTES_AT, size - BATCH_ATTRIBUTES_AT));
}

static bool is_kept(const sample *s, uint32_t at, uint32_t size) {
    for (int i = 0; i < s->marked; i++)
        if (s->marks[i].kind == KEPT && at < s->marks[i].at + s->marks[i].size && s->marks[i].at < at + size) return true;
    return false;
}

/* The valid frame that frame `number` is made of. The first numbers of `r`. */
static const sample *origin(uint64_t number, uint64_t *r) {
    *r = seed * 0xD1342543DE82EF95u + number * 0x2545F4914F6CDD1Du;
    const set *from = &sets[below(r, 100) < native_percent];
    return &from->of[below(r, from->count)];
}

/* Frame `number` into `data`, which has room for LARGEST; its size. */
static uint32_t make(uint64_t number, uint8_t *data) {
    uint64_t state, *r = &state;
    const sample *s = origin(number, r);
    const set *others = &sets[below(r, 2)];
    const sample *other = &others->of[below(r, others->count)];
    uint32_t used = s->size, start = below(r, 20) || s->bounded ? 8 : 0;
    bool gentle = below(r, 12) != 0;  /* values change, not their places: most of these are decoded whole, and answered */
    memcpy(data, s->bytes, used);
    for (int i = 0; i < s->marked; i++)
        if (s->marks[i].kind == RECORDS && s->marks[i].size && below(r, 3)) spoil_batch(r, data + s->marks[i].at, s->marks[i].size);
    for (uint32_t times = below(r, 20) == 0 ? 0 : 1 + (below(r, 4) == 0) + (below(r, 10) == 0); times && used > start; times--) {
        uint32_t at = start + below(r, used - start), kind = gentle ? 7 : below(r, 16), size = 1 + below(r, 20);
        uint8_t piece[64];
        for (int i = 0; i < 64; i += 8) { uint64_t v = mix(r); memcpy(piece + i, &v, 8); }
        if (kind == 0) used = at;
        else if (kind == 1) replace(data, &used, used, 0, piece, size);
        else if (kind < 5) {
            if (!is_kept(s, at, 1)) data[at] ^= (uint8_t)(1 << below(r, 8));
        } else if (kind == 5) {
            if (!is_kept(s, at, 1)) data[at] = piece[0];
        } else if (kind == 6) {
            int width = 1 << below(r, 4);
            if (at + width <= used && !is_kept(s, at, width)) put_number(data + at, width, interesting(r));
        } else if (kind < 13 && s->marked) {  /* at a border that is known */
            const mark *m = &s->marks[below(r, s->marked)];
            for (int i = 0; gentle && i < 8 && m->kind != NUMBER && (m->kind != TEXT || !m->size); i++) m = &s->marks[below(r, s->marked)];
            if (m->at + m->size > used || is_kept(s, m->at, m->size)) continue;
            if (gentle && m->kind != NUMBER && m->kind != TEXT) continue;
            if (m->kind == FIXED || m->kind == NUMBER) {
                uint64_t was = 0;
                for (int i = 0; i < m->size; i++) was = was << 8 | data[m->at + i];
                put_number(data + m->at, m->size, below(r, 3) ? interesting(r) : was + below(r, 5) - 2);
            } else if (m->kind == UVARINT) {
                uint64_t value = below(r, 3) ? interesting(r) : data[m->at] + below(r, 5) - 2;
                uint32_t width = 0, most = below(r, 8) ? 5 : 10;
                do { piece[width++] = (uint8_t)(value & 127) | 128; value >>= 7; } while (value && width < most);
                if (below(r, 10)) piece[width - 1] &= 127;
                if (!s->bounded) replace(data, &used, m->at, m->size, piece, width);
                else data[m->at] = piece[0];
            } else if (m->kind == TEXT && m->size) data[m->at + below(r, m->size)] = piece[0];
        } else if (s->bounded) continue;
        else if (kind == 13) {  /* a piece of it again, up to 8 times */
            if (at + size > used) size = used - at;
            uint8_t copy[64];
            memcpy(copy, data + at, size);
            for (uint32_t again = 1 + below(r, 8); again; again--) replace(data, &used, at, 0, copy, size);
        } else if (kind == 14) replace(data, &used, at, size, piece, 0);
        else {  /* the end of another one */
            uint32_t from = other->size > 8 ? 8 + below(r, other->size - 8) : 0;
            if (!other->bounded && at + other->size - from < LARGEST) {
                used = at + other->size - from;
                memcpy(data + at, other->bytes + from, other->size - from);
            }
        }
    }
    if (used >= 8) put32(data + CORRELATION_AT, (uint32_t)number & 0x7FFFFFFF);
    return used;
}

static int api_of(uint64_t number) {
    uint64_t state;
    return get16(origin(number, &state)->bytes);
}

static void read_corpus(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("cannot read the corpus", errno);
    uint8_t head[7];
    while (fread(head, 1, 7, file) == 7) {
        set *into = &sets[(head[4] & IS_NATIVE) != 0];
        if ((into->count & (into->count + 1)) == 0) into->of = realloc(into->of, sizeof *into->of * 2 * (into->count + 1));
        sample *s = &into->of[into->count++];
        s->size = get32(head);
        s->bounded = head[4] & IS_BOUNDED;
        s->marked = (uint16_t)get16(head + 5);
        if (s->size < 8 || s->size > LARGEST / 2) fail("a frame of this size in the corpus", s->size);
        s->bytes = malloc(s->size);
        s->marks = malloc(sizeof(mark) * (s->marked + 1u));
        if (fread(s->bytes, 1, s->size, file) != s->size) fail("the corpus is cut", into->count);
        if (get16(s->bytes) < 0 || get16(s->bytes) >= API_KEYS) fail("an API key in the corpus", get16(s->bytes));
        for (int i = 0; i < s->marked; i++) {
            if (fread(head, 1, 7, file) != 7) fail("the corpus is cut", into->count);
            s->marks[i] = (mark){get32(head), (uint16_t)get16(head + 4), head[6]};
            if (s->marks[i].at + s->marks[i].size > s->size) fail("a mark beyond its frame", into->count);
        }
    }
    fclose(file);
    if (!sets[0].count || !sets[1].count) fail("the corpus lacks a kind", sets[0].count);
}

static void connect_again(hostile *all, hostile *c) {
    static uint32_t place;
    if (c->fd >= 0) {
        struct linger at_once = {1, 0};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(c->fd);
        reconnects++;
    }
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) fail("socket", errno);
    /* From many addresses: one has too few ports for as many connections as these. */
    place++;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7F010001 + (place % 200 << 8) + place / 200 % 250)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int yes = 1;
    setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (bind(c->fd, (struct sockaddr *)&from, sizeof from) != 0) fail("bind", errno);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0) fail("the broker takes no connection", errno);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)(c - all)};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event) != 0) fail("epoll_ctl", errno);
    c->sent = c->head_got = 0;
    c->skip = c->out_at = c->out_size = 0;
    c->since = now;
}

static void take(hostile *c, int count) {
    c->count -= count;
    c->sent = c->sent > count ? c->sent - count : 0;
    memmove(c->waiting, c->waiting + count, sizeof *c->waiting * (size_t)c->count);
    c->since = now;
}

/* The first `count` of a connection. */
static void count_decoded(hostile *c, int count) {
    for (int i = 0; i < count; i++) decoded_of[api_of(c->waiting[i])]++;
    decoded += (uint64_t)count;
    last_decoded = now;
    take(c, count);
}

/* Writes what the socket takes; frames are numbered as they are first needed. */
static void feed(hostile *c, uint64_t most) {
    for (;;) {
        if (c->out_at == c->out_size) {
            if (c->sent > behind / 2) return;
            c->out_at = c->out_size = 0;
            while (c->sent < behind) {
                if (c->sent == c->count) {
                    if (next_frame >= most) break;
                    c->waiting[c->count++] = next_frame++;
                }
                if (c->out_room - c->out_size < LARGEST + FRAME_SIZE) {
                    c->out = realloc(c->out, c->out_room += 4 * LARGEST);
                    if (!c->out) fail("no memory", 0);
                }
                uint32_t size = make(c->waiting[c->sent++], c->out + c->out_size + FRAME_SIZE);
                put32(c->out + c->out_size, size);
                c->out_size += FRAME_SIZE + size;
            }
            if (c->out_size == 0) return;
        }
        ssize_t done = send(c->fd, c->out + c->out_at, c->out_size - c->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (done < 0) return;  /* full, or closed by the broker, as a read will tell */
        c->out_at += (size_t)done;
    }
}

static void answer(hostile *c, uint32_t correlation) {
    for (int i = 0; i < c->sent; i++)
        if (((uint32_t)c->waiting[i] & 0x7FFFFFFF) == correlation) {
            answered_of[api_of(c->waiting[i])]++;
            answered++;
            count_decoded(c, i + 1);
            return;
        }
    fail("an answer to a frame that was not sent", correlation);
}

/* False when the broker has closed. */
static bool drain(hostile *c) {
    static uint8_t buffer[1 << 18];
    for (;;) {
        ssize_t got = recv(c->fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
        if (got < 0) return true;
        for (ssize_t at = 0; at < got;) {
            if (c->skip) {
                uint64_t part = c->skip < (uint64_t)(got - at) ? c->skip : (uint64_t)(got - at);
                c->skip -= part;
                at += (ssize_t)part;
                c->since = now;
                continue;
            }
            c->head[c->head_got++] = buffer[at++];
            if (c->head_got == 8) {
                uint32_t size = get32(c->head);
                if (size < 4 || size > LARGEST_REPLY) fail("a reply of this size", size);
                c->head_got = 0;
                c->skip = size - 4;
                answer(c, get32(c->head + 4));
            }
        }
        if ((size_t)got < sizeof buffer) return true;
    }
}

int main(int argc, char **argv) {
    program = "hostile";
    int count = 32;
    long long pid = 0, show = -1;
    uint64_t most = 1000000;
    static const struct option known[] = {
        {"port", 1, 0, 'p'}, {"corpus", 1, 0, 'f'}, {"seed", 1, 0, 's'}, {"frames", 1, 0, 'n'}, {"connections", 1, 0, 'c'},
        {"behind", 1, 0, 'b'}, {"native", 1, 0, 'm'}, {"pid", 1, 0, 'i'}, {"show", 1, 0, 'x'}, {0}};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'f': read_corpus(optarg); break;
        case 's': seed = strtoull(optarg, NULL, 10); break;
        case 'n': most = strtoull(optarg, NULL, 10); break;
        case 'c': count = atoi(optarg); break;
        case 'b': behind = atoi(optarg); break;
        case 'm': native_percent = (uint32_t)atoi(optarg); break;
        case 'i': pid = atoll(optarg); break;
        case 'x': show = atoll(optarg); break;
        default: fail("usage: see the head of hostile.c", option);
    }
    if (!sets[0].count || native_percent > 100 || count < 1 || count > MOST || behind < 1 || behind > MOST_BEHIND) fail("usage: see the head of hostile.c", argc);
    if (show >= 0) {
        uint8_t *data = malloc(LARGEST);
        uint32_t size = make((uint64_t)show, data);
        for (uint32_t i = 0; i < size; i++) printf("%02x", data[i]);
        printf("\n");
        return 0;
    }
    poller = epoll_create1(EPOLL_CLOEXEC);
    hostile *all = calloc((size_t)count, sizeof *all);
    int64_t began = last_decoded = now = now_ns(), looked = began;
    for (int i = 0; i < count; i++) {
        all[i].fd = -1;
        connect_again(all, &all[i]);
        feed(&all[i], most);
    }
    for (bool left = true; left;) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, 20);
        now = now_ns();
        for (int i = 0; i < ready; i++) {
            hostile *c = &all[events[i].data.u32];
            if (!drain(c)) {
                if (c->sent) {  /* it was decoded, and refused */
                    refused++;
                    count_decoded(c, 1);
                }
                connect_again(all, c);
            }
            feed(c, most);
        }
        if (now - looked < 20 * 1000 * 1000) continue;
        looked = now;
        left = next_frame < most;
        for (int i = 0; i < count; i++) {
            hostile *c = &all[i];
            if (now - c->since > HELD_NS && c->sent && !c->skip && !c->head_got) {
                held++;
                take(c, 1);
                connect_again(all, c);
            }
            feed(c, most);
            left |= c->count != 0;
        }
        if (pid && kill((pid_t)pid, 0) != 0) fail("the broker has ended; frames were decoded", (long long)decoded);
        if (now - last_decoded > (int64_t)STALLED_S * 1000000000) {
            for (int i = 0; i < count; i++)
                if (all[i].sent) fprintf(stderr, "waits for the answer to frame %llu\n", (unsigned long long)all[i].waiting[0]);
            fail("nothing was decoded for a minute; frames before", (long long)decoded);
        }
    }
    printf("{\"frames\": %llu, \"decoded\": %llu, \"answered\": %llu, \"refused\": %llu, \"held\": %llu, \"connections\": %llu, \"seconds\": %.3f, \"apis\": {",
        (unsigned long long)next_frame, (unsigned long long)decoded, (unsigned long long)answered, (unsigned long long)refused,
        (unsigned long long)held, (unsigned long long)reconnects + (unsigned long long)count, (double)(now_ns() - began) / 1e9);
    const char *comma = "";
    for (int key = 0; key < API_KEYS; key++)
        if (decoded_of[key]) {
            printf("%s\"%d\": [%llu, %llu]", comma, key, (unsigned long long)decoded_of[key], (unsigned long long)answered_of[key]);
            comma = ", ";
        }
    printf("}}\n");
    return 0;
}
