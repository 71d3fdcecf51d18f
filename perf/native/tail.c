/* End-to-end latency: producers at a fixed rate and one consumer that tails the partition, in one thread with one clock.
 *
 *   tail --port N --topic T --rate R --seconds S [--warm-up S] [--connections N (8)] [--pids P[,P...]] FRAME_FILE
 *
 * FRAME_FILE holds one Produce version 7 request without frame size: one uncompressed batch with one record, whose value holds the 8 bytes
 * "KAFKAPY!" followed by 8 bytes for the stamp. Every request carries the time at which it was due, in nanoseconds, and the batch gets its
 * CRC-32C anew. The consumer long polls (one byte, 500 ms) from offset 0 of an empty topic; end-to-end latency is the time at which a batch was
 * read minus its stamp, so a broker, or a generator, that falls behind shows as latency. All that was acknowledged must arrive, in order
 * of offsets and only once. With --rate 0 requests follow replies as fast as they come: its requests per second are the broker's maximum.
 *
 * Prints one JSON object: requests, received, seconds, load_cpu_s, broker_cpu_s, end_to_end_us, produce_us (both without the warm-up). A wrong
 * reply, or records that are missing 10 s after the end, end it with exit code 1.
 */
#define _GNU_SOURCE
#include "wire.h"
#include <getopt.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

enum { EVENTS = 256, SPIN_NS = 60000, MARK = 8, FETCH_BYTES = 4 << 20 };

static histogram end_to_end, produced;
static uint64_t requests, received;
static int64_t counted_from;
static size_t batch_at, batch_size, stamp_in_batch;

/* Where the batch starts and the stamp stands in the frame. */
static void find_stamp(const connection *c) {
    uint8_t *mark = memmem(c->request, c->request_size, "KAFKAPY!", MARK);
    if (mark == NULL) fail("no room for a stamp in the frame", 0);
    size_t client = (size_t)get16(c->request + FRAME_SIZE + 8);
    const uint8_t *p = c->request + FRAME_SIZE + 10 + client + 2 + 2 + 4 + 4;   /* transactional id, acks, timeout, topics */
    p += 2 + get16(p) + 4 + 4;                                                   /* name, partitions, index */
    batch_size = get32(p);
    batch_at = (size_t)(p + 4 - c->request);
    stamp_in_batch = (size_t)(mark + MARK - c->request) - batch_at;
    if (batch_at + batch_size != c->request_size || stamp_in_batch + 8 > batch_size) fail("not a frame of one batch", (long long)batch_at);
}

static void stamp(connection *c, int64_t due) {
    uint8_t *batch = c->request + batch_at;
    put64(batch + stamp_in_batch, (uint64_t)due);
    put32(batch + BATCH_CRC_AT, crc32c(batch + BATCH_ATTRIBUTES_AT, batch_size - BATCH_ATTRIBUTES_AT));
    start_request(c, due);
}

static void consume(connection *c) {
    size_t left, whole;
    const uint8_t *p = fetched_records(c, &left);
    int64_t now = now_ns(), last;
    while ((whole = next_batch(p, left, c->offset, &last)) != 0) {
        if (whole != batch_size) fail("a batch of another size", (long long)whole);
        int64_t stamped = (int64_t)get64(p + stamp_in_batch);
        if (stamped >= counted_from) histogram_add(&end_to_end, now - stamped);
        c->offset = last + 1;
        received++;
        p += whole;
        left -= whole;
    }
}

int main(int argc, char **argv) {
    int port = 0, count = 8;
    double seconds = 1, warm_up = 0, rate = 0;
    const char *topic = "t", *pids = "";
    static const struct option known[] = {{"port", 1, 0, 'p'}, {"connections", 1, 0, 'c'}, {"seconds", 1, 0, 's'}, {"rate", 1, 0, 'r'},
                                          {"warm-up", 1, 0, 'w'}, {"pids", 1, 0, 'i'}, {"topic", 1, 0, 't'}, {0}};
    program = "tail";
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'c': count = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'r': rate = atof(optarg); break;
        case 'w': warm_up = atof(optarg); break;
        case 'i': pids = optarg; break;
        case 't': topic = optarg; break;
        default: fail("unknown option", option);
        }
    }
    if (optind + 1 != argc || count < 1) fail("usage: see the head of tail.c", argc);
    prctl(PR_SET_TIMERSLACK, 1UL);
    connection *all = calloc((size_t)count + 1, sizeof *all), *consumer = &all[count];
    int poller = epoll_create1(0);
    for (int i = 0; i <= count; i++) {
        open_connection(&all[i], port, i == count ? FETCH_BYTES + (1 << 16) : 4096);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &event);
        if (i < count) load_frame(&all[i], argv[optind]);
    }
    find_stamp(all);
    build_fetch(consumer, topic, 0, FETCH_BYTES, 500);
    consumer->offset = 0;
    start_request(consumer, now_ns());
    if (!push(consumer)) fail("the fetch request does not fit", 0);
    int free_count = count, *free_list = malloc(sizeof(int) * (size_t)count);
    for (int i = 0; i < count; i++) free_list[i] = count - 1 - i;
    struct epoll_event events[EVENTS];
    int64_t start = now_ns(), stop = start + (int64_t)((warm_up + seconds) * 1e9), interval = rate > 0 ? (int64_t)(1e9 / rate) : 0, due = start;
    int64_t broker_cpu = -1;
    double own_cpu = 0;
    uint64_t warm_requests = 0;
    counted_from = start + (int64_t)(warm_up * 1e9);
    int64_t ended = 0;
    for (;;) {
        int64_t now = now_ns();
        if (broker_cpu < 0 && now >= counted_from) { broker_cpu = cpu_ns_of(pids); own_cpu = own_cpu_seconds(); warm_requests = requests; }
        while (free_count > 0 && now < stop && (interval == 0 || due <= now)) {
            connection *c = &all[free_list[--free_count]];
            stamp(c, interval ? due : now_ns());
            due += interval;
            if (!push(c)) fail("a small request does not fit into the socket", free_count);
        }
        if (now >= stop && !ended && free_count == count) ended = now;
        if (ended && received == requests) break;
        if (now >= stop + 10000000000LL) fail("records missing 10 s after the end", (long long)(requests - received));
        int64_t wait_ns = 50000000;
        if (interval && free_count > 0 && now < stop) wait_ns = due - now > SPIN_NS ? due - now - SPIN_NS : 0;
        struct timespec wait = {.tv_sec = 0, .tv_nsec = wait_ns < 999999999 ? wait_ns : 999999999};
        int n = epoll_pwait2(poller, events, EVENTS, &wait, NULL);
        for (int i = 0; i < n; i++) {
            connection *c = &all[events[i].data.u32];
            if (!pull(c)) continue;
            if (c == consumer) {
                consume(c);
                start_request(c, now_ns());
                if (!push(c)) fail("the fetch request does not fit", 0);
                continue;
            }
            if (c->due_ns >= counted_from) histogram_add(&produced, now_ns() - c->due_ns);
            check_produce(c);
            requests++;
            free_list[free_count++] = (int)(c - all);
        }
    }
    double elapsed = (double)(ended - counted_from) / 1e9;
    broker_cpu = cpu_ns_of(pids) - broker_cpu;
    own_cpu = own_cpu_seconds() - own_cpu;
    printf("{\"requests\": %llu, \"received\": %llu, \"seconds\": %.6f, \"load_cpu_s\": %.6f, \"broker_cpu_s\": %.6f, ",
           (unsigned long long)(requests - warm_requests), (unsigned long long)received, elapsed, own_cpu, (double)broker_cpu / 1e9);
    histogram_print("end_to_end_us", &end_to_end);
    printf(", ");
    histogram_print("produce_us", &produced);
    printf("}\n");
    return 0;
}
