/* Members of a share group: ShareFetch and acknowledgements as fast as replies come, or at a producer's pace. Every reply is checked.
 *
 *   share drain [options] --records N
 *   share paced [options] --rate R --seconds S FRAME_FILE...
 *
 * Options: --port N, --group G, --topic T, --partitions P (1), --members M (1), --max-records R (500), --pids P[,P...] (of the broker).
 *
 * Each member has a connection. All join the group (ShareGroupHeartbeat 1) until everybody has partitions and the same epoch; the clock starts then.
 * Drain: the topic holds N records. Each ShareFetch (version 2, batch-optimized) accepts what the one before it has acquired, until all N records
 * are acknowledged; no record may be acknowledged twice. Latencies are those of ShareFetch.
 * Paced: the frames are Produce requests of one stamped record each (see tail.c), one for each partition. A member that gets records accepts them
 * at once by ShareAcknowledge (version 2); a latency is the time of its reply minus the stamp.
 *
 * Prints one JSON object: records, requests, redelivered, seconds, load_cpu_s (its own), broker_cpu_s (of the pids), latency_us. A wrong reply ends it
 * with exit code 1.
 */
#define _GNU_SOURCE
#include "fields.h"
#include <getopt.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

enum {
    EVENTS = 1024, MOST_MEMBERS = 4096, MOST_PARTITIONS = 1024, BEAT_NS = 20000000, PATIENCE_S = 120, MARK = 8, PRODUCERS = 8,
    FETCH_BYTES = 4 << 20, LONG_WAIT_MS = 500, SHORT_WAIT_MS = 20, HEARTBEAT = 76, SHARE_FETCH = 78, SHARE_ACKNOWLEDGE = 79
};
enum { JOINING, JOINED, FETCHING, ACKNOWLEDGING, LEAVING, LEFT };

typedef struct { int partition; int64_t first, last; } range;

typedef struct {
    connection c;
    int step, epoch, session_epoch;
    char id[40];
    int owned[MOST_PARTITIONS], owned_count;
    range *held;                  /* acquired; the next request accepts them */
    size_t held_count, held_capacity, sent_count;
    int64_t *stamps;              /* paced: of the records that are held */
    size_t stamp_count, stamp_capacity;
    int64_t wake_at;
} member;

static member *all;
static connection *producers;
static int count = 1, partitions = 1, poller, max_records = 500, paced, stopping;
static const char *group = "", *topic = "";
static uint8_t topic_id[TOPIC_ID];
static uint64_t wanted, acknowledged, requests, redelivered;
static uint8_t *seen[MOST_PARTITIONS];        /* a bit for each offset that was acknowledged */
static size_t seen_size[MOST_PARTITIONS];
static histogram latencies;
static size_t batch_at[MOST_PARTITIONS], batch_size, stamp_in_batch;

/* --- requests --- */

static void begin_share_request(member *m, int key, int version) {
    begin_request(&m->c, key, version);
    add8(&m->c, 0);                                            /* tags of the header */
    add_compact(&m->c, group);
    add_compact(&m->c, m->id);
}

static void send_request(member *m) {
    put32(m->c.request, (uint32_t)(m->c.request_size - FRAME_SIZE));
    start_request(&m->c, now_ns());
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = (uint32_t)(m - all)};
    if (!push(&m->c) && epoll_ctl(poller, EPOLL_CTL_MOD, m->c.fd, &event) != 0) fail("epoll_ctl", errno);
}

static cursor share_reply(const member *m) {
    cursor r = reply_of(&m->c);
    take_tags(&r);
    take32(&r);                                                      /* throttle time */
    return r;
}

/* --- membership --- */

static void say_heartbeat(member *m, int epoch) {
    begin_share_request(m, HEARTBEAT, 1);
    add32(&m->c, epoch);
    add8(&m->c, 0);                                                 /* no rack */
    if (epoch == 0) {
        add_count(&m->c, 1);
        add_compact(&m->c, topic);
    } else {
        add8(&m->c, 0);
    }
    add8(&m->c, 0);
    send_request(m);
}

static void heartbeat_answered(member *m) {
    cursor r = share_reply(m);
    int16_t error = take16(&r);
    take_compact(&r);
    if (error == 14 || error == 15 || error == 16) {                 /* the coordinator loads, or is not there yet */
        m->wake_at = now_ns() + BEAT_NS;
        return;
    }
    if (error != 0) fail("ShareGroupHeartbeat error code", error);
    if (m->step == LEAVING) { m->step = LEFT; return; }
    take_compact(&r);                                                /* member id */
    m->epoch = take32(&r);
    take32(&r);                                                      /* interval */
    if ((int8_t)*take(&r, 1) >= 0) {
        m->owned_count = 0;
        for (uint32_t topics = take_count(&r); topics; topics--) {
            memcpy(topic_id, take(&r, TOPIC_ID), TOPIC_ID);
            for (uint32_t n = take_count(&r); n; n--) {
                int partition = take32(&r);
                if (partition < 0 || partition >= partitions) fail("a partition that does not exist", partition);
                m->owned[m->owned_count++] = partition;
            }
            take_tags(&r);
        }
    }
    m->wake_at = now_ns() + BEAT_NS;
}

static int settled(void) {
    uint8_t owned[MOST_PARTITIONS] = {0};
    int sum = 0;
    for (int i = 0; i < count; i++) {
        if (all[i].epoch == 0 || all[i].epoch != all[0].epoch || all[i].owned_count == 0) return 0;
        for (int k = 0; k < all[i].owned_count; k++) { sum += !owned[all[i].owned[k]]; owned[all[i].owned[k]] = 1; }
    }
    return sum == partitions;
}

/* --- records --- */

/* The topics of a request: all partitions of the member when its session begins, and those with something to accept. */
static void add_topics(member *m, int opening) {
    int named[MOST_PARTITIONS], n = 0;
    for (int k = 0; k < m->owned_count; k++) {
        int some = opening;
        for (size_t i = 0; i < m->held_count && !some; i++) some = m->held[i].partition == m->owned[k];
        if (some) named[n++] = m->owned[k];
    }
    if (n == 0) { add_count(&m->c, 0); return; }
    add_count(&m->c, 1);
    add_bytes(&m->c, topic_id, TOPIC_ID);
    add_count(&m->c, (size_t)n);
    for (int k = 0; k < n; k++) {
        size_t ranges = 0;
        for (size_t i = 0; i < m->held_count; i++) ranges += m->held[i].partition == named[k];
        add32(&m->c, named[k]);
        add_count(&m->c, ranges);
        for (size_t i = 0; i < m->held_count; i++) {
            if (m->held[i].partition != named[k]) continue;
            add64(&m->c, m->held[i].first);
            add64(&m->c, m->held[i].last);
            add_count(&m->c, 1);
            add8(&m->c, 1);                                        /* accept */
            add8(&m->c, 0);
        }
        add8(&m->c, 0);
    }
    add8(&m->c, 0);
}

static void say_fetch(member *m) {
    m->step = FETCHING;
    begin_share_request(m, SHARE_FETCH, 2);
    add32(&m->c, m->session_epoch);
    add32(&m->c, paced ? LONG_WAIT_MS : SHORT_WAIT_MS);
    add32(&m->c, 1);
    add32(&m->c, FETCH_BYTES);
    add32(&m->c, max_records);
    add32(&m->c, max_records);                                     /* records of an acquired batch */
    add8(&m->c, 0);                                                /* batch-optimized */
    add8(&m->c, 0);                                                /* no renewals */
    add_topics(m, m->session_epoch == 0);
    add_count(&m->c, 0);                                           /* nothing forgotten */
    add8(&m->c, 0);
    m->sent_count = m->held_count;
    m->session_epoch++;
    send_request(m);
}

static void say_acknowledge(member *m) {
    m->step = ACKNOWLEDGING;
    begin_share_request(m, SHARE_ACKNOWLEDGE, 2);
    add32(&m->c, m->session_epoch);
    add8(&m->c, 0);
    add_topics(m, 0);
    add8(&m->c, 0);
    m->sent_count = m->held_count;
    m->session_epoch++;
    send_request(m);
}

static void mark(int partition, int64_t offset) {
    size_t at = (size_t)offset / 8;
    if (at >= seen_size[partition]) {
        size_t size = (at + 1) * 2 + 65536;
        seen[partition] = realloc(seen[partition], size);
        if (seen[partition] == NULL) fail("no memory", (long long)size);
        memset(seen[partition] + seen_size[partition], 0, size - seen_size[partition]);
        seen_size[partition] = size;
    }
    if (seen[partition][at] >> (offset % 8) & 1) fail("a record is acknowledged twice", offset);
    seen[partition][at] |= (uint8_t)(1 << (offset % 8));
}

/* What the request accepted is done. */
static void accepted(member *m) {
    for (size_t i = 0; i < m->sent_count; i++) {
        for (int64_t offset = m->held[i].first; offset <= m->held[i].last; offset++) mark(m->held[i].partition, offset);
        acknowledged += (uint64_t)(m->held[i].last - m->held[i].first + 1);
    }
    memmove(m->held, m->held + m->sent_count, (m->held_count - m->sent_count) * sizeof *m->held);
    m->held_count -= m->sent_count;
    m->sent_count = 0;
}

static void hold(member *m, range r) {
    if (m->held_count == m->held_capacity) {
        m->held_capacity = m->held_capacity * 2 + 64;
        m->held = realloc(m->held, m->held_capacity * sizeof *m->held);
        if (m->held == NULL) fail("no memory", (long long)m->held_capacity);
    }
    m->held[m->held_count++] = r;
}

static int is_acquired(const member *m, size_t from, int64_t offset) {
    for (size_t i = from; i < m->held_count; i++) if (m->held[i].first <= offset && offset <= m->held[i].last) return 1;
    return 0;
}

/* The stamps of the acquired records: each batch has one record. */
static void take_stamps(member *m, size_t from, const uint8_t *p, size_t left) {
    while (left >= BATCH_HEADER && left >= BATCH_LOG_OVERHEAD + (size_t)get32(p + BATCH_LENGTH_AT)) {
        size_t whole = BATCH_LOG_OVERHEAD + (size_t)get32(p + BATCH_LENGTH_AT);
        if (whole != batch_size) fail("a batch of another size", (long long)whole);
        if (is_acquired(m, from, (int64_t)get64(p))) {
            if (m->stamp_count == m->stamp_capacity) {
                m->stamp_capacity = m->stamp_capacity * 2 + 64;
                m->stamps = realloc(m->stamps, m->stamp_capacity * sizeof *m->stamps);
                if (m->stamps == NULL) fail("no memory", (long long)m->stamp_capacity);
            }
            m->stamps[m->stamp_count++] = (int64_t)get64(p + stamp_in_batch);
        }
        p += whole;
        left -= whole;
    }
}

static void take_leader(cursor *r) { take32(r); take32(r); take_tags(r); }

static void fetch_answered(member *m) {
    cursor r = share_reply(m);
    int16_t error = take16(&r);
    take_compact(&r);
    if (error != 0) fail("ShareFetch error code", error);
    take32(&r);                                                      /* lock time-out */
    accepted(m);
    for (uint32_t topics = take_count(&r); topics; topics--) {
        take(&r, TOPIC_ID);
        for (uint32_t n = take_count(&r); n; n--) {
            int partition = take32(&r);
            if ((error = take16(&r)) != 0) fail("ShareFetch partition error code", error);
            take_compact(&r);
            if ((error = take16(&r)) != 0) fail("ShareFetch acknowledge error code", error);
            take_compact(&r);
            take_leader(&r);
            size_t size = take_count(&r), from = m->held_count;
            const uint8_t *data = take(&r, (int64_t)size);
            for (uint32_t ranges = take_count(&r); ranges; ranges--) {
                range acquired = {partition, 0, 0};
                acquired.first = take64(&r);
                acquired.last = take64(&r);
                if (take16(&r) > 1) redelivered += (uint64_t)(acquired.last - acquired.first + 1);
                take_tags(&r);
                if (acquired.first < 0 || acquired.last < acquired.first) fail("impossible acquired records", acquired.first);
                hold(m, acquired);
            }
            take_tags(&r);
            if (paced) take_stamps(m, from, data, size);
        }
        take_tags(&r);
    }
    if (!paced && !stopping) histogram_add(&latencies, now_ns() - m->c.due_ns);
}

static void acknowledge_answered(member *m) {
    cursor r = share_reply(m);
    int16_t error = take16(&r);
    take_compact(&r);
    if (error != 0) fail("ShareAcknowledge error code", error);
    take32(&r);
    for (uint32_t topics = take_count(&r); topics; topics--) {
        take(&r, TOPIC_ID);
        for (uint32_t n = take_count(&r); n; n--) {
            take32(&r);
            if ((error = take16(&r)) != 0) fail("ShareAcknowledge partition error code", error);
            take_compact(&r);
            take_leader(&r);
            take_tags(&r);
        }
        take_tags(&r);
    }
    int64_t now = now_ns();
    for (size_t i = 0; i < m->stamp_count; i++) histogram_add(&latencies, now - m->stamps[i]);
    m->stamp_count = 0;
    accepted(m);
}

static void go_on(member *m) {
    if (stopping) {
        m->step = LEAVING;
        say_heartbeat(m, -1);
    } else if (paced && m->held_count) {
        say_acknowledge(m);
    } else {
        say_fetch(m);
    }
}

static void answered(member *m) {
    requests++;
    switch (m->step) {
    case FETCHING: fetch_answered(m); go_on(m); break;
    case ACKNOWLEDGING: acknowledge_answered(m); go_on(m); break;
    default: heartbeat_answered(m);
    }
}

/* --- the producer --- */

static void find_stamp(const connection *c, int partition) {
    uint8_t *at = memmem(c->request, c->request_size, "KAFKAPY!", MARK);
    if (at == NULL) fail("no room for a stamp in the frame", partition);
    size_t client = (size_t)get16(c->request + FRAME_SIZE + 8);
    const uint8_t *p = c->request + FRAME_SIZE + 10 + client + 2 + 2 + 4 + 4;
    p += 2 + get16(p) + 4 + 4;
    batch_size = get32(p);
    batch_at[partition] = (size_t)(p + 4 - c->request);
    stamp_in_batch = (size_t)(at + MARK - c->request) - batch_at[partition];
    if (batch_at[partition] + batch_size != c->request_size || stamp_in_batch + 8 > batch_size) fail("not a frame of one batch", partition);
}

static void produce(connection *c, int64_t due) {
    uint8_t *batch = c->request + batch_at[c->partition];
    put64(batch + stamp_in_batch, (uint64_t)due);
    put32(batch + BATCH_CRC_AT, crc32c(batch + BATCH_ATTRIBUTES_AT, batch_size - BATCH_ATTRIBUTES_AT));
    start_request(c, due);
    if (!push(c)) fail("a small request does not fit into the socket", c->partition);
}

/* --- the loop --- */

/* Until all members have settled, all records are acknowledged, or everybody has left. */
static void drive(int64_t interval, int64_t stop) {
    struct epoll_event events[EVENTS];
    int64_t patience = now_ns() + PATIENCE_S * 1000000000LL + (stop ? stop - now_ns() : 0), due = now_ns();
    int joining = all[0].step == JOINING, turn = 0;
    static uint8_t busy[PRODUCERS * MOST_PARTITIONS];
    static uint64_t produced;
    for (;;) {
        int64_t now = now_ns();
        if (now > patience) {
            fail(joining ? "members have no partitions after seconds" : stopping ? "members have not left after seconds"
                                                                               : "records are not acknowledged after seconds", PATIENCE_S);
        }
        if (joining && settled()) return;
        if (!joining && !stopping && wanted && acknowledged >= wanted) return;
        if (!joining && !stopping && stop && now >= stop && acknowledged == produced) return;
        if (stopping) {
            int left = 0;
            for (int i = 0; i < count; i++) left += all[i].step == LEFT;
            if (left == count) return;
        }
        for (int i = 0; joining && i < count; i++) {
            if (all[i].wake_at && all[i].wake_at <= now) { all[i].wake_at = 0; say_heartbeat(&all[i], all[i].epoch); }
        }
        int idle = 0;
        for (int i = 0; interval && i < PRODUCERS * partitions && now < stop && due <= now; i++) {
            int k = turn++ % (PRODUCERS * partitions);
            if (busy[k]) { idle++; continue; }
            busy[k] = 1;
            produce(&producers[k], due);
            produced++;
            due += interval;
        }
        int64_t wait_ns = joining ? 1000000 : interval && now < stop && idle < PRODUCERS * partitions ? (due > now ? due - now : 0) : 50000000;
        struct timespec wait = {.tv_nsec = wait_ns < 50000000 ? wait_ns : 50000000};
        int n = epoll_pwait2(poller, events, EVENTS, &wait, NULL);
        for (int i = 0; i < n; i++) {
            uint32_t which = events[i].data.u32;
            if (which >= MOST_MEMBERS) {
                connection *c = &producers[which - MOST_MEMBERS];
                if (!pull(c)) continue;
                check_produce(c);
                busy[which - MOST_MEMBERS] = 0;
                continue;
            }
            member *m = &all[which];
            if (events[i].events & EPOLLOUT && push(&m->c)) {
                struct epoll_event event = {.events = EPOLLIN, .data.u32 = which};
                if (epoll_ctl(poller, EPOLL_CTL_MOD, m->c.fd, &event) != 0) fail("epoll_ctl", errno);
            }
            if (!(events[i].events & ~(uint32_t)EPOLLOUT) || !pull(&m->c)) continue;
            answered(m);
        }
    }
}

static void watch(int fd, uint32_t number) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl", errno);
}

int main(int argc, char **argv) {
    int port = 0;
    double seconds = 1, rate = 0;
    const char *pids = "";
    static const struct option known[] = {
        {"port", 1, 0, 'p'}, {"members", 1, 0, 'm'}, {"seconds", 1, 0, 's'}, {"pids", 1, 0, 'i'}, {"topic", 1, 0, 't'}, {"group", 1, 0, 'g'},
        {"partitions", 1, 0, 'n'}, {"records", 1, 0, 'r'}, {"rate", 1, 0, 'a'}, {"max-records", 1, 0, 'x'}, {0}};
    program = "share";
    if (argc < 2 || (strcmp(argv[1], "drain") != 0 && strcmp(argv[1], "paced") != 0)) fail("usage: see the head of share.c", argc);
    paced = argv[1][0] == 'p';
    optind = 2;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'm': count = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'i': pids = optarg; break;
        case 't': topic = optarg; break;
        case 'g': group = optarg; break;
        case 'n': partitions = atoi(optarg); break;
        case 'r': wanted = (uint64_t)atoll(optarg); break;
        case 'a': rate = atof(optarg); break;
        case 'x': max_records = atoi(optarg); break;
        default: fail("unknown option", option);
        }
    }
    if (count < 1 || count > MOST_MEMBERS || partitions < 1 || partitions > MOST_PARTITIONS) fail("too many or too few", count);
    if (paced ? rate <= 0 || argc - optind != partitions : wanted == 0) fail("nothing to do", argc - optind);
    prctl(PR_SET_TIMERSLACK, 1UL);
    poller = epoll_create1(0);
    all = calloc((size_t)count, sizeof *all);
    if (paced) {
        producers = calloc((size_t)(PRODUCERS * partitions), sizeof *producers);
        for (int k = 0; k < PRODUCERS * partitions; k++) {
            open_connection(&producers[k], port, 4096);
            producers[k].partition = k % partitions;
            load_frame(&producers[k], argv[optind + k % partitions]);
            find_stamp(&producers[k], k % partitions);
            watch(producers[k].fd, (uint32_t)(MOST_MEMBERS + k));
        }
    }
    for (int i = 0; i < count; i++) {
        open_connection(&all[i].c, port, FETCH_BYTES);
        snprintf(all[i].id, sizeof all[i].id, "member-%06d-of-the-load-generator", i);
        watch(all[i].c.fd, (uint32_t)i);
        say_heartbeat(&all[i], 0);
    }
    drive(0, 0);
    for (int i = 0; i < count; i++) {                                /* heartbeats that are still to be answered */
        while (all[i].wake_at == 0) { if (pull(&all[i].c)) heartbeat_answered(&all[i]); }
        all[i].wake_at = 0;
        all[i].step = JOINED;
    }
    int64_t broker_cpu = cpu_ns_of(pids);
    double own_cpu = own_cpu_seconds();
    int64_t start = now_ns();
    requests = 0;
    for (int i = 0; i < count; i++) say_fetch(&all[i]);
    drive(paced ? (int64_t)(1e9 / rate) : 0, paced ? start + (int64_t)(seconds * 1e9) : 0);
    double elapsed = (double)(now_ns() - start) / 1e9;
    own_cpu = own_cpu_seconds() - own_cpu;
    broker_cpu = cpu_ns_of(pids) - broker_cpu;
    uint64_t records = acknowledged, measured = requests;
    stopping = 1;
    drive(0, 0);
    printf("{\"records\": %llu, \"requests\": %llu, \"redelivered\": %llu, \"seconds\": %.6f, \"load_cpu_s\": %.6f, \"broker_cpu_s\": %.6f, ",
           (unsigned long long)records, (unsigned long long)measured, (unsigned long long)redelivered, elapsed, own_cpu, (double)broker_cpu / 1e9);
    histogram_print("latency_us", &latencies);
    printf("}\n");
    return 0;
}
