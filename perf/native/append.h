/* A file that grows at its end, into disk space that is reserved 4 MB ahead. */
#ifndef KAFKAPY_PERF_APPEND_H
#define KAFKAPY_PERF_APPEND_H
#include "wire.h"
#include <fcntl.h>

enum { RESERVE = 4 << 20 };

typedef struct { int fd; off_t end, reserved; } growing_file;

static inline int open_file(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    if (fd < 0) fail("cannot make a file", errno);
    return fd;
}

static inline void append(growing_file *file, const void *data, size_t size) {
    if (file->end + (off_t)size > file->reserved) {
        /* Where the file system cannot, each write finds its own blocks. */
        file->reserved = file->end + (off_t)size + RESERVE;
        (void)!fallocate(file->fd, FALLOC_FL_KEEP_SIZE, file->end, (off_t)size + RESERVE);
    }
    if (pwrite(file->fd, data, size, file->end) != (ssize_t)size) fail("cannot write", errno);
    file->end += (off_t)size;
}

static inline void empty_file(growing_file *file) {
    if (ftruncate(file->fd, file->end = file->reserved = 0) != 0) fail("cannot empty a file", errno);
}
#endif
