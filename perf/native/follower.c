/* The limit of a follower: one thread that copies partitions from their leader, with nothing else around it.
 *
 *   follower --port N [--topic T (t)] [--partitions P (1)] [--replica R (-1)] [--bytes B (0)] DIRECTORY
 *
 * One connection, one Fetch version 11 in flight for all partitions, without session, as a replica with that id or as a consumer (-1): it waits up
 * to 500 ms for one byte, and takes up to 1 MB in all. Kafka's 10 MB stay in the socket longer, and cost this program half as much CPU again. Of each
 * partition in the reply: CRC-32C of each batch (the value, in three streams of the CPU's instruction), then the whole batches with one pwrite to
 * DIRECTORY/<topic>-<partition>, whose disk space is reserved 4 MB ahead. The next request begins behind them. A partition is handled as soon as
 * it is received.
 * No index, no other thread. The leader may be any broker.
 *
 * With --bytes it ends when it has written as many, and prints one JSON object: bytes, requests, seconds, cpu_s (its own). Otherwise it runs until
 * it is killed. A wrong reply ends it with exit code 1.
 */
#define _GNU_SOURCE
#include "append.h"
#include "checksum.h"
#include "fields.h"
#include <getopt.h>

enum { FETCH = 1, MAX_WAIT_MS = 500, PARTITION_BYTES = 1 << 20, REPLY_BYTES = 1 << 20, HEADERS = 1 << 20 };

typedef struct {
    growing_file file;
    int64_t offset;
    size_t offset_at;             /* in the request */
} partition;

static connection leader;
static partition *partitions;
static int partition_count = 1, replica = -1;
static const char *topic = "t";
static size_t taken;              /* of the reply */
static uint64_t written, requests;

static void build_request(void) {
    begin_request(&leader, FETCH, FETCH_VERSION);
    add32(&leader, replica);
    add32(&leader, MAX_WAIT_MS);
    add32(&leader, 1);
    add32(&leader, REPLY_BYTES);
    add8(&leader, 0);                                              /* isolation */
    add32(&leader, 0);
    add32(&leader, -1);                                            /* no session */
    add32(&leader, 1);
    add_string(&leader, topic);
    add32(&leader, partition_count);
    for (int i = 0; i < partition_count; i++) {
        add32(&leader, i);
        add32(&leader, -1);                                        /* leader epoch */
        partitions[i].offset_at = leader.request_size;
        add64(&leader, 0);
        add64(&leader, replica < 0 ? -1 : 0);                      /* log start offset */
        add32(&leader, PARTITION_BYTES);
    }
    add32(&leader, 0);                                             /* forgotten topics */
    add_string(&leader, "");                                       /* rack */
    put32(leader.request, (uint32_t)(leader.request_size - FRAME_SIZE));
}

static void ask(void) {
    put32(leader.request + FRAME_SIZE + CORRELATION_AT, (uint32_t)++leader.correlation);
    for (int i = 0; i < partition_count; i++) put64(leader.request + partitions[i].offset_at, (uint64_t)partitions[i].offset);
    if (send(leader.fd, leader.request, leader.request_size, MSG_NOSIGNAL) != (ssize_t)leader.request_size) fail("send failed", errno);
    leader.got = taken = 0;
    requests++;
}

/* The next bytes of the reply, when they are there. */
static const uint8_t *next(size_t n) {
    if (taken + n > leader.reply_capacity) fail("a reply longer than asked for", (long long)(taken + n));
    while (leader.got < taken + n) {
        ssize_t came = recv(leader.fd, leader.reply + leader.got, leader.reply_capacity - leader.got, 0);
        if (came == 0) fail("the leader closed the connection", leader.correlation);
        if (came < 0) fail("recv failed", errno);
        leader.got += (size_t)came;
    }
    taken += n;
    return leader.reply + taken - n;
}

static int16_t next16(void) { return get16(next(2)); }
static int32_t next32(void) { return (int32_t)get32(next(4)); }

/* The whole batches; a leader may cut the last one. */
static void copy(partition *to, const uint8_t *records, size_t size) {
    size_t whole = 0;
    for (size_t n; (n = checked_batch(records + whole, size - whole, to->offset)) != 0; whole += n)
        to->offset += get32(records + whole + BATCH_LAST_DELTA_AT) + 1;
    if (whole) append(&to->file, records, whole);
    written += whole;
}

static void take_reply(void) {
    size_t size = (size_t)next32();
    if (next32() != leader.correlation) fail("wrong correlation id", leader.correlation);
    next32();                                                      /* throttle time */
    int16_t error = next16();
    if (error != 0) fail("fetch error code", error);
    next32();
    for (int32_t topics = next32(); topics > 0; topics--) {
        int16_t name = next16();
        if (name < 0 || (size_t)name != strlen(topic) || memcmp(next((size_t)name), topic, (size_t)name) != 0) fail("another topic", name);
        for (int32_t left = next32(); left > 0; left--) {
            int32_t index = next32();
            error = next16();
            if (error != 0 || index < 0 || index >= partition_count) fail("error code of a partition", error);
            next(8 + 8 + 8);                                       /* high watermark, last stable offset, log start offset */
            int32_t aborted = next32();
            if (aborted > 0) next((size_t)aborted * 16);
            next32();                                              /* preferred replica */
            int32_t records = next32();
            if (records > 0) copy(&partitions[index], next((size_t)records), (size_t)records);
        }
    }
    if (taken != size + FRAME_SIZE || leader.got != taken) fail("bytes after the reply", (long long)(leader.got - taken));
}

int main(int argc, char **argv) {
    int port = 0;
    uint64_t wanted = 0;
    static const struct option known[] = {{"port", 1, 0, 'p'}, {"topic", 1, 0, 't'}, {"partitions", 1, 0, 'n'}, {"replica", 1, 0, 'r'},
                                          {"bytes", 1, 0, 'b'}, {0}};
    program = "follower";
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 't': topic = optarg; break;
        case 'n': partition_count = atoi(optarg); break;
        case 'r': replica = atoi(optarg); break;
        case 'b': wanted = (uint64_t)atoll(optarg); break;
        default: fail("unknown option", option);
        }
    }
    if (optind + 1 != argc || partition_count < 1) fail("usage: see the head of follower.c", argc);
    checksum_start();
    int64_t start = now_ns();
    partitions = calloc((size_t)partition_count, sizeof *partitions);
    for (int i = 0; i < partition_count; i++) {
        char name[300];
        snprintf(name, sizeof name, "%s-%d", topic, i);
        partitions[i].file.fd = open_file(argv[optind], name);
    }
    /* A batch larger than what was asked for comes whole. */
    open_connection(&leader, port, REPLY_BYTES + 2 * PARTITION_BYTES + HEADERS);
    build_request();
    while (wanted == 0 || written < wanted) {
        ask();
        take_reply();
    }
    printf("{\"bytes\": %llu, \"requests\": %llu, \"seconds\": %.6f, \"cpu_s\": %.6f}\n", (unsigned long long)written, (unsigned long long)requests,
           (double)(now_ns() - start) / 1e9, own_cpu_seconds());
    return 0;
}
