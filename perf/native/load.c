/* A neutral load generator: pre-encoded Produce and Fetch requests over raw sockets, every reply checked.
 *
 *   load produce [options] --topic T FRAME_FILE [FRAME_FILE ...]
 *   load fetch   [options] --topic T --partitions P --end-offset E --max-bytes B
 *   load handshakes [options]
 *   load percentiles < nanoseconds, one a line
 *
 * Options: --port N, --connections N (1), --seconds S (1), --rate R (0), --limit-bytes N (none), --pids P[,P...] (of the broker), --poll 1.
 *
 * With --tls 1 over TLS 1.3, which needs a server's certificate and trusts any. Handshakes: connections one after the other, each with one ApiVersions
 * request; with --resume 1 they go on with the session of the connection before.
 *
 * Produce: FRAME_FILE holds one Produce version 7 request without frame size; connection i sends file i mod n over and over, one request in
 * flight; only the correlation id is patched. The reply's error code must be 0 and its base offset above the connection's last one.
 * Fetch: version 11 without session, one partition a request; connection i reads partition i mod P from offset 0 on and starts over at E.
 * Every batch header is walked; offsets must go on without a gap. Bytes of a last, partial batch do not count.
 * The rate is in requests per second over all connections, 0 for as fast as replies come. With a rate, latency counts from the time a
 * request was due, so that a broker which stalls cannot hide it. The run ends after S seconds or N bytes, whichever comes first.
 * With --poll it never sleeps, so that no reply has to wake it; for a core of its own.
 * With --whole N only every Nth reply of a connection is copied out of the kernel whole. Of the others the head is, with the first batch's header;
 * the rest is received and thrown away there. The next offset follows from that header, as batches of one topic are alike, and is checked by the
 * next reply. For fetches so large that copying would keep the generator from being faster than the broker.
 *
 * Prints one JSON object: requests, bytes (on the wire for produce, of whole batches for fetch), seconds, load_cpu_s (its own, without polling in vain), broker_cpu_s
 * (of the pids; both only while requests flow, not while connecting), latency_us. Any wrong reply ends it with exit code 1.
 */
#define _GNU_SOURCE
#include <signal.h>
#include "secure.h"
#include <getopt.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

enum { EVENTS = 1024, SPIN_NS = 60000, KEPT_HEAD = 512 };

static histogram latencies;
static uint64_t requests, bytes;

static void check_fetch(connection *c, int64_t end_offset) {
    size_t left, whole;
    const uint8_t *p = fetched_records(c, &left);
    int64_t last;
    if (left == 0 || (whole = next_batch(p, left, c->offset, &last)) == 0) fail("fetch brought nothing at offset", c->offset);
    if (c->keep) {
        size_t batches = left / whole;
        c->offset += (last + 1 - c->offset) * (int64_t)batches;
        bytes += batches * whole;
    } else {
        do {
            c->offset = last + 1;
            bytes += whole;
            p += whole;
            left -= whole;
        } while ((whole = next_batch(p, left, c->offset, &last)) != 0);
    }
    if (c->offset >= end_offset) c->offset = 0;
}

static void watch(int poller, connection *all, connection *c, int how, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u32 = (uint32_t)(c - all)};
    if (epoll_ctl(poller, how, c->fd, &event) != 0) fail("epoll_ctl", errno);
}

static ssize_t write_secured(connection *c, const void *data, size_t size) { return secure_write_to(c->tls, data, size); }
static ssize_t read_secured(connection *c, void *into, size_t size) { return secure_read_from(c->tls, into, size); }

static void start_tls(void) {
    secure_start(TLS_client_method());
    secure_write = write_secured;
    secure_read = read_secured;
}

static void secure(connection *c) {
    c->tls = secure_connection(c->fd, 0);
    if (SSL_connect(c->tls) != 1) { ERR_print_errors_fp(stderr); fail("the TLS handshake failed", c->fd); }
}

static int handshakes(int port, double seconds, int resume, const char *pids) {
    static const uint8_t ask[] = {0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255};      /* ApiVersions version 0 */
    uint8_t reply[65536];
    SSL_SESSION *session = NULL;
    uint64_t resumed = 0;
    int64_t broker_cpu = cpu_ns_of(pids), start = now_ns(), stop = start + (int64_t)(seconds * 1e9);
    double own_cpu = own_cpu_seconds();
    while (now_ns() < stop) {
        int64_t began = now_ns();
        connection c = {.fd = connect_to(port)};
        c.tls = secure_connection(c.fd, 0);
        if (session != NULL) SSL_set_session(c.tls, session);
        if (SSL_connect(c.tls) != 1) { ERR_print_errors_fp(stderr); fail("the TLS handshake failed", (long long)requests); }
        if (secure_write(&c, ask, sizeof ask) != sizeof ask) fail("the request is not sent", errno);
        for (size_t got = 0; got < FRAME_SIZE || got < FRAME_SIZE + get32(reply);) {
            ssize_t n = secure_read(&c, reply + got, sizeof reply - got);
            if (n <= 0) fail("no answer", n);
            got += (size_t)n;
        }
        histogram_add(&latencies, now_ns() - began);
        resumed += (uint64_t)SSL_session_reused(c.tls);
        requests++;
        if (resume) { SSL_SESSION_free(session); session = SSL_get1_session(c.tls); }
        SSL_shutdown(c.tls);
        SSL_free(c.tls);
        close(c.fd);
    }
    if (resume ? resumed + 1 < requests : resumed > 0) fail("handshakes with a session", (long long)resumed);
    double elapsed = (double)(now_ns() - start) / 1e9;
    broker_cpu = cpu_ns_of(pids) - broker_cpu;
    printf("{\"requests\": %llu, \"seconds\": %.6f, \"load_cpu_s\": %.6f, \"broker_cpu_s\": %.6f, ", (unsigned long long)requests, elapsed,
           own_cpu_seconds() - own_cpu, (double)broker_cpu / 1e9);
    histogram_print("latency_us", &latencies);
    printf("}\n");
    return 0;
}

static int print_percentiles(void) {
    long long ns;
    while (scanf("%lld", &ns) == 1) histogram_add(&latencies, ns);
    printf("{");
    histogram_print("latency_us", &latencies);
    printf("}\n");
    return 0;
}

int main(int argc, char **argv) {
    int port = 0, count = 1, partitions = 1, max_bytes = 1 << 20;
    double seconds = 1, rate = 0;
    int64_t end_offset = 0, limit_bytes = INT64_MAX, in_vain = 0;
    int poll = 0, tls = 0, resume = 0;
    unsigned whole = 1;
    const char *topic = "t", *pids = "";
    static const struct option known[] = {
        {"port", 1, 0, 'p'}, {"connections", 1, 0, 'c'}, {"seconds", 1, 0, 's'}, {"rate", 1, 0, 'r'}, {"limit-bytes", 1, 0, 'l'},
        {"pids", 1, 0, 'i'}, {"topic", 1, 0, 't'}, {"partitions", 1, 0, 'n'}, {"end-offset", 1, 0, 'e'}, {"max-bytes", 1, 0, 'm'}, {"poll", 1, 0, 'o'}, {"whole", 1, 0, 'w'}, {"tls", 1, 0, 'x'},
        {"resume", 1, 0, 'y'}, {0}};
    if (argc < 2) fail("usage: see the head of load.c", argc);
    if (strcmp(argv[1], "percentiles") == 0) return print_percentiles();
    int fetch = strcmp(argv[1], "fetch") == 0;
    optind = 2;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'c': count = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'r': rate = atof(optarg); break;
        case 'l': limit_bytes = atoll(optarg); break;
        case 'i': pids = optarg; break;
        case 't': topic = optarg; break;
        case 'n': partitions = atoi(optarg); break;
        case 'e': end_offset = atoll(optarg); break;
        case 'm': max_bytes = atoi(optarg); break;
        case 'o': poll = atoi(optarg); break;
        case 'w': whole = (unsigned)atoi(optarg); break;
        case 'x': tls = atoi(optarg); break;
        case 'y': resume = atoi(optarg); break;
        default: fail("unknown option", option);
        }
    }
    if (tls) start_tls();
    if (strcmp(argv[1], "handshakes") == 0) return handshakes(port, seconds, resume, pids);
    char **files = argv + optind;
    int file_count = argc - optind;
    if (count < 1 || partitions < 1 || whole < 1 || (!fetch && file_count < 1)) fail("nothing to send", count);
    prctl(PR_SET_TIMERSLACK, 1UL);
    connection *all = calloc((size_t)count, sizeof *all);
    int poller = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        connection *c = &all[i];
        open_connection(c, port, fetch ? (size_t)max_bytes + (1 << 16) : 4096);
        if (tls) {
            secure(c);
            fcntl(c->fd, F_SETFL, O_NONBLOCK);
        }
        if (fetch) {
            build_fetch(c, topic, i % partitions, max_bytes, 500);
            c->offset = 0;
        } else {
            load_frame(c, files[i % file_count]);
        }
        watch(poller, all, c, EPOLL_CTL_ADD, EPOLLIN);
    }
    int free_count = count, in_flight = 0, *free_list = malloc(sizeof(int) * (size_t)count);
    for (int i = 0; i < count; i++) free_list[i] = count - 1 - i;
    struct epoll_event events[EVENTS];
    int64_t broker_cpu = cpu_ns_of(pids);
    double own_cpu = own_cpu_seconds();
    int64_t start = now_ns(), stop = start + (int64_t)(seconds * 1e9), interval = rate > 0 ? (int64_t)(1e9 / rate) : 0, due = start;
    for (;;) {
        int64_t now = now_ns();
        if (bytes >= (uint64_t)limit_bytes && now < stop) stop = now;
        while (free_count > 0 && now < stop && (interval == 0 || due <= now)) {
            connection *c = &all[free_list[--free_count]];
            c->keep = c->replies++ % whole ? KEPT_HEAD : 0;
            start_request(c, interval ? due : now_ns());
            due += interval;
            in_flight++;
            if (!push(c)) watch(poller, all, c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
        }
        if (now >= stop && in_flight == 0) break;
        if (now >= stop + 30000000000LL) fail("replies missing 30 s after the end", in_flight);
        int64_t wait_ns = 100000000;
        if (interval && free_count > 0 && now < stop) wait_ns = due - now > SPIN_NS ? due - now - SPIN_NS : 0;
        struct timespec wait = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
        if (poll) wait = (struct timespec){0};
        int n = epoll_pwait2(poller, events, EVENTS, &wait, NULL);
        if (poll && n == 0) in_vain += now_ns() - now;
        for (int i = 0; i < n; i++) {
            connection *c = &all[events[i].data.u32];
            if (events[i].events & EPOLLOUT && push(c)) watch(poller, all, c, EPOLL_CTL_MOD, EPOLLIN);
            if (!(events[i].events & ~(uint32_t)EPOLLOUT) || !pull(c)) continue;
            histogram_add(&latencies, now_ns() - c->due_ns);
            if (fetch) {
                check_fetch(c, end_offset);
            } else {
                check_produce(c);
                bytes += c->request_size;
            }
            requests++;
            in_flight--;
            free_list[free_count++] = (int)(c - all);
        }
    }
    double elapsed = (double)(now_ns() - start) / 1e9;
    own_cpu = (own_cpu_seconds() - own_cpu) * (1 - (double)in_vain / 1e9 / elapsed);
    broker_cpu = cpu_ns_of(pids) - broker_cpu;
    if (requests == 0) fail("no request was answered", 0);
    printf("{\"requests\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"load_cpu_s\": %.6f, \"broker_cpu_s\": %.6f, ", (unsigned long long)requests,
           (unsigned long long)bytes, elapsed, own_cpu, (double)broker_cpu / 1e9);
    histogram_print("latency_us", &latencies);
    printf("}\n");
    return 0;
}
