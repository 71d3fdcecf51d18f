/* The listening side of the limits: a port of the loopback interface, and its connections. */
#ifndef KAFKAPY_PERF_SERVING_H
#define KAFKAPY_PERF_SERVING_H
#include "wire.h"
#include <sys/epoll.h>

/* A listener on any free port. */
static inline int listen_anywhere(int *port) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1024) || getsockname(listener, (struct sockaddr *)&at, &length))
        fail("cannot listen", errno);
    *port = ntohs(at.sin_port);
    return listener;
}

static inline int accept_connection(int listener) {
    int fd = accept(listener, NULL, NULL), one = 1;
    if (fd < 0) fail("cannot accept", errno);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);          /* as kafkapy's broker: nothing to pace here */
    return fd;
}

static inline void watch_socket(int poller, int how, int fd, uint32_t events, void *whose) {
    struct epoll_event event = {.events = events, .data.ptr = whose};
    if (epoll_ctl(poller, how, fd, &event) != 0) fail("epoll_ctl", errno);
}
#endif
