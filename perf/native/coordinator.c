/* The load on coordinators: offset commits, transactions, and members that join a group all at once. Every reply is checked.
 *
 *   coordinator commits      [options] --expected FILE FRAME_FILE...
 *   coordinator transactions [options] --batch-bytes B --records R --added FILE --ended FILE ADD_FILE PRODUCE_FILE END_FILE...
 *   coordinator join         [options] --group G
 *   coordinator heartbeats   [options] --group G --topic T --partitions P
 *
 * Options: --port N, --connections N (1), --seconds S (1), --pids P[,P...] (of the broker).
 *
 * Commits: connection i sends frame i mod n (without frame size) over and over; the reply must be the one in the file but for its correlation id.
 * Transactions: connection i has three frames, i mod n: AddPartitionsToTxn version 2, Produce version 7 with one batch of B bytes and R records
 * at its end, EndTxn version 2. The batch's sequence number goes up, and its CRC is set. CONCURRENT_TRANSACTIONS is answered by the same
 * request 1 ms later (a retry). A transaction is counted, and its latency taken, from its first request to the reply to the last one.
 * Join: each connection is a member (JoinGroup version 5, SyncGroup version 3); the leader gives everybody an assignment of 50 bytes. Who is
 * done says so with a Heartbeat (version 2) every 200 ms and joins again when told to. The time is taken until all are done in one generation.
 * Heartbeats: each connection is a member (ConsumerGroupHeartbeat version 0) that beats in the interval it is told, and at once when its
 * assignment has changed. The time is taken until all are in one epoch, each with its share of the partitions. Members leave afterwards, in both.
 *
 * Prints one JSON object: requests, retries, seconds, load_cpu_s (its own), broker_cpu_s (of the pids), latency_us; transactions, or generation.
 * Any wrong reply ends it with exit code 1.
 */
#define _GNU_SOURCE
#include "fields.h"
#include <getopt.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

enum {
    EVENTS = 1024, RETRY_NS = 1000000, BEAT_NS = 200000000, PATIENCE_S = 120,
    BATCH_SEQUENCE_AT = 53, BATCH_CRC_FROM = BATCH_ATTRIBUTES_AT,
    ILLEGAL_GENERATION = 22, UNKNOWN_MEMBER_ID = 25, REBALANCE_IN_PROGRESS = 27, CONCURRENT_TRANSACTIONS = 51, MEMBER_ID_REQUIRED = 79,
    ASSIGNMENT_BYTES = 50, METADATA_BYTES = 60, MOST_CONNECTIONS = 1 << 16
};

typedef struct { uint8_t *bytes; size_t size; } frame;

typedef struct {
    connection c;
    int step;
    int64_t wake_at, began;       /* 0 when it does not sleep; when the transaction began */
    frame frames[3];              /* transactions */
    int32_t sequence;
    char member_id[128];          /* groups */
    int32_t generation;           /* or member epoch */
    int done;
    uint8_t *assignment;          /* heartbeats: the topics and their partitions as the broker wrote them */
    size_t assignment_size;
    int owned;
    int64_t interval_ns;
} actor;

static actor *all;
static int count = 1, poller, in_flight, sleeping;
static histogram latencies;
static uint64_t requests, retries, transactions;
static int64_t stop_at;
static const char *group = "", *topic = "";
static int partitions, records, leaving;
static size_t batch_bytes;
static frame expected, expected_added, expected_ended;

/* --- frames --- */

static frame read_frame(const char *path) {
    connection c;
    load_frame(&c, path);
    return (frame){c.request, c.request_size};
}

static void say(actor *a) {
    start_request(&a->c, now_ns());
    in_flight++;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = (uint32_t)(a - all)};
    if (!push(&a->c) && epoll_ctl(poller, EPOLL_CTL_MOD, a->c.fd, &event) != 0) fail("epoll_ctl", errno);
}

static void end_request(actor *a) {
    put32(a->c.request, (uint32_t)(a->c.request_size - FRAME_SIZE));
    say(a);
}

static void sleep_for(actor *a, int64_t ns) {
    a->wake_at = now_ns() + ns;
    sleeping++;
}

/* --- commits --- */

static void say_frame(actor *a, frame f) {
    a->c.request = f.bytes;
    a->c.request_size = f.size;
    say(a);
}

/* The reply but for its correlation id and its last `open` bytes, which are given back. */
static const uint8_t *same_reply(const actor *a, frame wanted, size_t open, const char *what) {
    size_t size = get32(a->c.reply) + FRAME_SIZE;
    if (size != wanted.size || memcmp(a->c.reply + FRAME_SIZE + 4, wanted.bytes + FRAME_SIZE + 4, size - FRAME_SIZE - 4 - open) != 0)
        fail(what, size >= FRAME_SIZE + 2 ? get16(a->c.reply + size - 2) : -1);
    return a->c.reply + size - open;
}

static void commit_answered(actor *a) {
    same_reply(a, expected, 0, "another reply to OffsetCommit than expected");
    histogram_add(&latencies, now_ns() - a->c.due_ns);
    if (now_ns() < stop_at) say_frame(a, a->frames[0]);
}

/* --- transactions --- */

static void begin_transaction(actor *a) {
    a->step = 0;
    a->began = now_ns();
    say_frame(a, a->frames[0]);
}

static void produce_in_transaction(actor *a) {
    frame f = a->frames[1];
    uint8_t *batch = f.bytes + f.size - batch_bytes;
    put32(batch + BATCH_SEQUENCE_AT, (uint32_t)a->sequence);
    put32(batch + BATCH_CRC_AT, crc32c(batch + BATCH_CRC_FROM, batch_bytes - BATCH_CRC_FROM));
    a->sequence = (int32_t)(((uint32_t)a->sequence + (uint32_t)records) & INT32_MAX);
    say_frame(a, f);
}

static void transaction_answered(actor *a) {
    if (a->step == 1) {
        check_produce(&a->c);
    } else {
        const uint8_t *rest = a->step ? same_reply(a, expected_ended, 2, "another reply to EndTxn than expected")
                                      : same_reply(a, expected_added, 6, "another reply to AddPartitionsToTxn than expected");
        /* Both end with the error code; before it the partition, which is the last that was asked for. */
        if (a->step == 0 && memcmp(rest, a->frames[0].bytes + a->frames[0].size - 4, 4) != 0) fail("another partition", get32(rest));
        int16_t error = get16(a->step ? rest : rest + 4);
        if (error == CONCURRENT_TRANSACTIONS) {
            retries++;
            sleep_for(a, RETRY_NS);
            return;
        }
        if (error != 0) fail(a->step ? "EndTxn error code" : "AddPartitionsToTxn error code", error);
    }
    if (++a->step < 3) {
        if (a->step == 1) produce_in_transaction(a); else say_frame(a, a->frames[a->step]);
        return;
    }
    transactions++;
    histogram_add(&latencies, now_ns() - a->began);
    if (now_ns() < stop_at) begin_transaction(a);
}

/* --- members of a classic group --- */

enum { JOINING, SYNCING, BEATING, LEAVING };

static void say_join(actor *a) {
    static const uint8_t metadata[METADATA_BYTES];
    a->step = JOINING;
    a->done = 0;
    begin_request(&a->c, 11, 5);
    add_string(&a->c, group);
    add32(&a->c, 60000);
    add32(&a->c, 60000);
    add_string(&a->c, a->member_id);
    add16(&a->c, -1);                                              /* no group.instance.id */
    add_string(&a->c, "consumer");
    add32(&a->c, 1);
    add_string(&a->c, "range");
    add32(&a->c, METADATA_BYTES);
    add_bytes(&a->c, metadata, METADATA_BYTES);
    end_request(a);
}

static void say_heartbeat(actor *a) {
    a->step = BEATING;
    begin_request(&a->c, 12, 2);
    add_string(&a->c, group);
    add32(&a->c, a->generation);
    add_string(&a->c, a->member_id);
    end_request(a);
}

static void say_leave(actor *a) {
    a->step = LEAVING;
    begin_request(&a->c, 13, 2);
    add_string(&a->c, group);
    add_string(&a->c, a->member_id);
    end_request(a);
}

static void take_member_id(actor *a, cursor *r, int64_t n) {
    const uint8_t *id = take(r, n);
    if (n >= (int64_t)sizeof a->member_id) fail("long member id", n);
    memcpy(a->member_id, id, (size_t)n);
    a->member_id[n] = 0;
}

static void joined(actor *a) {
    static const uint8_t assignment[ASSIGNMENT_BYTES];
    cursor r = reply_of(&a->c);
    take32(&r);
    int16_t error = take16(&r);
    if (error != 0 && error != MEMBER_ID_REQUIRED) fail("JoinGroup error code", error);
    a->generation = take32(&r);
    take(&r, take16(&r));                                            /* protocol */
    take(&r, take16(&r));                                            /* leader */
    take_member_id(a, &r, take16(&r));
    if (error == MEMBER_ID_REQUIRED) {
        say_join(a);
        return;
    }
    a->step = SYNCING;
    begin_request(&a->c, 14, 3);
    add_string(&a->c, group);
    add32(&a->c, a->generation);
    add_string(&a->c, a->member_id);
    add16(&a->c, -1);
    int32_t members = take32(&r);
    add32(&a->c, members);
    for (; members > 0; members--) {
        int16_t n = take16(&r);
        add16(&a->c, n);
        add_bytes(&a->c, take(&r, n), (size_t)n);
        int16_t instance = take16(&r);
        if (instance > 0) take(&r, instance);
        take(&r, take32(&r));
        add32(&a->c, ASSIGNMENT_BYTES);
        add_bytes(&a->c, assignment, ASSIGNMENT_BYTES);
    }
    end_request(a);
}

static void classic_answered(actor *a) {
    if (a->step == JOINING) {
        joined(a);
        return;
    }
    cursor r = reply_of(&a->c);
    take32(&r);
    int16_t error = take16(&r);
    if (leaving) {
        if (a->step == LEAVING && error != 0) fail("LeaveGroup error code", error);
        if (a->step != LEAVING) say_leave(a);
        return;
    }
    if (error == REBALANCE_IN_PROGRESS || error == ILLEGAL_GENERATION) {
        say_join(a);
        return;
    }
    if (error != 0) fail(a->step == SYNCING ? "SyncGroup error code" : "Heartbeat error code", error);
    if (a->step == SYNCING && take32(&r) != ASSIGNMENT_BYTES) fail("bytes of an assignment", a->generation);
    a->done = 1;
    sleep_for(a, BEAT_NS);
}

/* --- members of a consumer group --- */

static void say_consumer_heartbeat(actor *a, int full, int acknowledged) {
    begin_request(&a->c, 68, 0);
    add8(&a->c, 0);                                                /* tags of the header */
    add_compact(&a->c, group);
    add_compact(&a->c, a->member_id);
    add32(&a->c, a->step == LEAVING ? -1 : a->generation);
    add8(&a->c, 0);
    add8(&a->c, 0);                                                /* no instance, no rack */
    add32(&a->c, full ? 60000 : -1);
    if (full) {
        add_varint(&a->c, 2);
        add_compact(&a->c, topic);
    } else {
        add8(&a->c, 0);
    }
    add8(&a->c, 0);                                                /* no assignor */
    if (full) {
        add_varint(&a->c, 1);                                      /* owns nothing */
    } else if (acknowledged) {
        add_bytes(&a->c, a->assignment, a->assignment_size);
    } else {
        add8(&a->c, 0);
    }
    add8(&a->c, 0);
    end_request(a);
}

static void consumer_answered(actor *a) {
    cursor r = reply_of(&a->c);
    take_tags(&r);
    take32(&r);
    int16_t error = take16(&r);
    if (error != 0) fail("ConsumerGroupHeartbeat error code", error);
    if (a->step == LEAVING) return;
    uint32_t n = take_varint(&r);                                    /* error message */
    if (n) take(&r, n - 1);
    n = take_varint(&r);
    if (n) take_member_id(a, &r, n - 1);
    a->generation = take32(&r);
    a->interval_ns = (int64_t)take32(&r) * 1000000;
    if ((int8_t)*take(&r, 1) >= 0) {
        const uint8_t *begin = r.p;
        a->owned = 0;
        for (uint32_t topics = take_varint(&r); topics > 1; topics--) {
            take(&r, TOPIC_ID);
            uint32_t numbers = take_varint(&r);
            if (numbers) take(&r, (int64_t)(numbers - 1) * 4);
            a->owned += numbers ? (int)numbers - 1 : 0;
            take_tags(&r);
        }
        a->assignment_size = (size_t)(r.p - begin);
        a->assignment = realloc(a->assignment, a->assignment_size);
        memcpy(a->assignment, begin, a->assignment_size);
        a->done = 0;
        if (!leaving) {
            say_consumer_heartbeat(a, 0, 1);
            return;
        }
    } else {
        a->done = 1;
    }
    if (leaving) {
        a->step = LEAVING;
        say_consumer_heartbeat(a, 0, 0);
    } else {
        sleep_for(a, a->interval_ns);
    }
}

/* --- the loop --- */

/* Each member has the same number of partitions: with one that has all of them, and the others none, an assignment is still to come. */
static int settled(int consumer) {
    for (int i = 0; i < count; i++) {
        if (!all[i].done || all[i].generation != all[0].generation) return 0;
        if (consumer && all[i].owned * count != partitions) return 0;
    }
    return 1;
}

static void wake(actor *a, const char *mode) {
    a->wake_at = 0;
    sleeping--;
    switch (mode[0]) {
    case 't': say_frame(a, a->frames[a->step]); break;
    case 'j': if (leaving) say_leave(a); else say_heartbeat(a); break;
    default:
        if (leaving) a->step = LEAVING;
        say_consumer_heartbeat(a, 0, 0);
    }
}

/* Until nothing is in flight and nobody sleeps, or all have settled. */
static void drive(const char *mode, void (*answered)(actor *)) {
    struct epoll_event events[EVENTS];
    int member = mode[0] == 'j' || mode[0] == 'h';
    int64_t patience = (stop_at ? stop_at : now_ns()) + PATIENCE_S * 1000000000LL;
    while (in_flight || sleeping) {
        int64_t now = now_ns(), next = now + 100000000;
        if (now > patience) fail("no end after seconds", PATIENCE_S);
        if (sleeping) {
            for (int i = 0; i < count; i++) {
                if (all[i].wake_at && (all[i].wake_at <= now || leaving)) wake(&all[i], mode);
                else if (all[i].wake_at && all[i].wake_at < next) next = all[i].wake_at;
            }
        }
        struct timespec wait = {.tv_nsec = next > now ? next - now : 0};
        int n = epoll_pwait2(poller, events, EVENTS, &wait, NULL);
        for (int i = 0; i < n; i++) {
            actor *a = &all[events[i].data.u32];
            if (events[i].events & EPOLLOUT && push(&a->c)) {
                struct epoll_event event = {.events = EPOLLIN, .data.u32 = events[i].data.u32};
                if (epoll_ctl(poller, EPOLL_CTL_MOD, a->c.fd, &event) != 0) fail("epoll_ctl", errno);
            }
            if (!(events[i].events & ~(uint32_t)EPOLLOUT) || !pull(&a->c)) continue;
            in_flight--;
            requests++;
            if (member && !leaving) histogram_add(&latencies, now_ns() - a->c.due_ns);
            answered(a);
        }
        if (member && !leaving && settled(mode[0] == 'h')) return;
    }
}

int main(int argc, char **argv) {
    int port = 0;
    double seconds = 1;
    const char *pids = "";
    static const struct option known[] = {
        {"port", 1, 0, 'p'}, {"connections", 1, 0, 'c'}, {"seconds", 1, 0, 's'}, {"pids", 1, 0, 'i'}, {"topic", 1, 0, 't'}, {"group", 1, 0, 'g'},
        {"partitions", 1, 0, 'n'}, {"batch-bytes", 1, 0, 'b'}, {"records", 1, 0, 'r'}, {"expected", 1, 0, 'x'}, {"added", 1, 0, 'a'},
        {"ended", 1, 0, 'e'}, {0}};
    program = "coordinator";
    if (argc < 2) fail("usage: see the head of coordinator.c", argc);
    const char *mode = argv[1];
    optind = 2;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'c': count = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'i': pids = optarg; break;
        case 't': topic = optarg; break;
        case 'g': group = optarg; break;
        case 'n': partitions = atoi(optarg); break;
        case 'b': batch_bytes = (size_t)atoll(optarg); break;
        case 'r': records = atoi(optarg); break;
        case 'x': expected = read_frame(optarg); break;
        case 'a': expected_added = read_frame(optarg); break;
        case 'e': expected_ended = read_frame(optarg); break;
        default: fail("unknown option", option);
        }
    }
    char **files = argv + optind;
    int each = strcmp(mode, "commits") == 0 ? 1 : strcmp(mode, "transactions") == 0 ? 3 : 0, sets = each ? (argc - optind) / each : 0;
    if (!each && strcmp(mode, "join") != 0 && strcmp(mode, "heartbeats") != 0) fail("unknown mode", argc);
    if (count < 1 || count > MOST_CONNECTIONS || (each && sets < 1)) fail("nothing to send", count);
    prctl(PR_SET_TIMERSLACK, 1UL);
    all = calloc((size_t)count, sizeof *all);
    poller = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        actor *a = &all[i];
        open_connection(&a->c, port, 4096);
        for (int k = 0; k < each; k++) a->frames[k] = read_frame(files[i % sets * each + k]);
        if (each == 3 && a->frames[1].size < batch_bytes + FRAME_SIZE) fail("a Produce request shorter than its batch", (long long)batch_bytes);
        if (mode[0] == 'h') snprintf(a->member_id, sizeof a->member_id, "member-%06d", i);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, a->c.fd, &event) != 0) fail("epoll_ctl", errno);
    }
    int64_t broker_cpu = cpu_ns_of(pids);
    double own_cpu = own_cpu_seconds();
    int64_t start = now_ns();
    void (*answered)(actor *) = mode[0] == 'c' ? commit_answered : mode[0] == 't' ? transaction_answered : mode[0] == 'j' ? classic_answered : consumer_answered;
    if (each) stop_at = start + (int64_t)(seconds * 1e9);
    for (int i = 0; i < count; i++) {
        switch (mode[0]) {
        case 'c': say_frame(&all[i], all[i].frames[0]); break;
        case 't': begin_transaction(&all[i]); break;
        case 'j': say_join(&all[i]); break;
        default: say_consumer_heartbeat(&all[i], 1, 0);
        }
    }
    drive(mode, answered);
    double elapsed = (double)(now_ns() - start) / 1e9;
    own_cpu = own_cpu_seconds() - own_cpu;
    broker_cpu = cpu_ns_of(pids) - broker_cpu;
    int32_t generation = all[0].generation;
    uint64_t measured = requests;
    if (!each) {
        leaving = 1;
        drive(mode, answered);
    }
    printf("{\"requests\": %llu, \"retries\": %llu, \"transactions\": %llu, \"generation\": %d, \"seconds\": %.6f, \"load_cpu_s\": %.6f, "
           "\"broker_cpu_s\": %.6f, ", (unsigned long long)measured, (unsigned long long)retries, (unsigned long long)transactions, generation,
           elapsed, own_cpu, (double)broker_cpu / 1e9);
    histogram_print("latency_us", &latencies);
    printf("}\n");
    return 0;
}
