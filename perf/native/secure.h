/* TLS 1.3 for the native programs: OpenSSL over the sockets that they have anyway. A client verifies nothing. */
#ifndef KAFKAPY_PERF_SECURE_H
#define KAFKAPY_PERF_SECURE_H
#include "wire.h"
#include <openssl/err.h>
#include <openssl/ssl.h>

static SSL_CTX *secure_context;

static inline ssize_t secure_result(SSL *tls, int result) {
    int why = SSL_get_error(tls, result);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) { errno = EAGAIN; return -1; }
    if (why == SSL_ERROR_ZERO_RETURN || (why == SSL_ERROR_SYSCALL && ERR_peek_error() == 0)) return 0;
    ERR_print_errors_fp(stderr);
    errno = EPROTO;
    return -1;
}

static inline ssize_t secure_write_to(SSL *tls, const void *data, size_t size) {
    size_t n;
    int result = SSL_write_ex(tls, data, size, &n);
    return result == 1 ? (ssize_t)n : secure_result(tls, result);
}

static inline ssize_t secure_read_from(SSL *tls, void *into, size_t size) {
    size_t n;
    int result = SSL_read_ex(tls, into, size, &n);
    return result == 1 ? (ssize_t)n : secure_result(tls, result);
}

static inline SSL_CTX *secure_start(const SSL_METHOD *method) {
    signal(SIGPIPE, SIG_IGN);
    secure_context = SSL_CTX_new(method);
    SSL_CTX_set_min_proto_version(secure_context, TLS1_3_VERSION);
    SSL_CTX_set_mode(secure_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(secure_context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_read_ahead(secure_context, 1);
    return secure_context;
}

static inline SSL *secure_connection(int fd, int server) {
    SSL *tls = SSL_new(secure_context);
    if (tls == NULL || !SSL_set_fd(tls, fd)) fail("no TLS connection", fd);
    if (server) SSL_set_accept_state(tls); else SSL_set_connect_state(tls);
    return tls;
}
#endif
