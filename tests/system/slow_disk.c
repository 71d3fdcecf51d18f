/* Makes one kind of file operation on one path slow. Preloaded (LD_PRELOAD) into a broker; what is slow is said in a file that the test maps too
 * (SLOW_DISK_CONTROL, struct control), so that it can change while the broker runs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { PWRITE = 1, SYNC = 2, RENAME = 4, OPEN = 8, READ = 16 };

struct control { int32_t calls, ms, one_in, hits; char part[240]; };     /* part: of the path; one_in: calls, by a counter */
static volatile struct control* control;
static int32_t counter;

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char* path = getenv("SLOW_DISK_CONTROL");
    int fd = path ? REAL(int, open, const char*, int, ...)(path, O_RDWR) : -1;
    if (fd < 0) return;
    void* at = mmap(0, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) control = at;
}

static void slow(int call, const char* path) {
    if (!strstr(path, (const char*)control->part)) return;
    if (control->one_in > 1 && __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED) % control->one_in) return;
    __atomic_add_fetch((int32_t*)&control->hits, 1, __ATOMIC_SEQ_CST);
    struct timespec t = { control->ms / 1000, control->ms % 1000 * 1000000L };
    nanosleep(&t, 0);
}
static void slow_fd(int call, int fd) {
    char link[64], path[2048];
    if (!control || !(control->calls & call)) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return;
    path[n] = 0;
    slow(call, path);
}
static void slow_path(int call, const char* path) {
    if (control && control->calls & call) slow(call, path);
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | __O_TMPFILE)) { va_list l; va_start(l, flags); mode = va_arg(l, mode_t); va_end(l); }
int open(const char* path, int flags, ...) { MODE slow_path(OPEN, path); return REAL(int, open, const char*, int, mode_t)(path, flags, mode); }
int open64(const char* path, int flags, ...) { MODE slow_path(OPEN, path); return REAL(int, open64, const char*, int, mode_t)(path, flags, mode); }
int openat(int at, const char* path, int flags, ...) { MODE slow_path(OPEN, path); return REAL(int, openat, int, const char*, int, mode_t)(at, path, flags, mode); }
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) { slow_fd(PWRITE, fd); return REAL(ssize_t, pwrite64, int, const void*, size_t, off64_t)(fd, data, size, at); }
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }
ssize_t pread64(int fd, void* data, size_t size, off64_t at) { slow_fd(READ, fd); return REAL(ssize_t, pread64, int, void*, size_t, off64_t)(fd, data, size, at); }
ssize_t pread(int fd, void* data, size_t size, off_t at) { return pread64(fd, data, size, at); }
ssize_t sendfile64(int out, int in, off64_t* at, size_t size) { slow_fd(READ, in); return REAL(ssize_t, sendfile64, int, int, off64_t*, size_t)(out, in, at, size); }
ssize_t sendfile(int out, int in, off_t* at, size_t size) { return sendfile64(out, in, at, size); }
int fsync(int fd) { slow_fd(SYNC, fd); return REAL(int, fsync, int)(fd); }
int fdatasync(int fd) { slow_fd(SYNC, fd); return REAL(int, fdatasync, int)(fd); }
int rename(const char* from, const char* to) { slow_path(RENAME, from); return REAL(int, rename, const char*, const char*)(from, to); }
int renameat(int from_at, const char* from, int to_at, const char* to) { slow_path(RENAME, from); return REAL(int, renameat, int, const char*, int, const char*)(from_at, from, to_at, to); }
