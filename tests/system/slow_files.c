/* Makes some files of a process slow, and lists the file operations of its main thread. Preloaded (LD_PRELOAD); see tests/system/slow_files.py.
 *
 * KAFKAPY_SLOW_FILES names a file that the test maps too, so that what is slow can change while the process runs: struct control.
 * KAFKAPY_LOOP_FILES names another one. While <it>.on exists, a line "<operation> <path>" is added to it for each operation of the main thread
 * on a path that contains KAFKAPY_LOOP_ROOT.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, RENAME = 4, OPEN = 8, READ = 16, TRUNCATE = 32, UNLINK = 64, MKDIR = 128, RMDIR = 256, STAT = 512, LIST = 1024 };
static const char* const names[] = { "write", "sync", "rename", "open", "read", "truncate", "unlink", "mkdir", "rmdir", "stat", "list" };

/* operations: those that take ms longer on a path that contains `part`, or one in so many of them; hits: how many were slow; ended: changes when
 * those that are slow are to go on at once. */
struct control { int32_t operations, ms, one_in, hits, ended; char part[236]; };
static volatile struct control* control;
static int32_t counter;

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char* path = getenv("KAFKAPY_SLOW_FILES");
    int fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void* at = mmap(0, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) control = at;
    syscall(SYS_close, fd);
}

static void be_slow(int operation, const char* path) {
    if (!control || !(control->operations & operation) || !strstr(path, (const char*)control->part)) return;
    if (control->one_in > 1 && __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED) % control->one_in) return;
    __atomic_add_fetch((int32_t*)&control->hits, 1, __ATOMIC_SEQ_CST);
    struct timespec now, slice = { 0, 10000000L };
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t end = now.tv_sec * 1000L + now.tv_nsec / 1000000 + control->ms, left = control->ms;
    for (int32_t ended = control->ended; left > 0 && control->ended == ended; ) {
        if (left < 10) slice.tv_nsec = left * 1000000L;
        nanosleep(&slice, 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
        left = end - (now.tv_sec * 1000L + now.tv_nsec / 1000000);
    }
}

/* System calls only: nothing here may come back to the functions below. */
static void list(int operation, const char* path) {
    char line[1400];
    const char* listed = getenv("KAFKAPY_LOOP_FILES");
    if (!listed || syscall(SYS_gettid) != getpid()) return;
    snprintf(line, sizeof line, "%s.on", listed);
    const char* root = getenv("KAFKAPY_LOOP_ROOT");
    if (syscall(SYS_faccessat, AT_FDCWD, line, F_OK) != 0 || !root || !strstr(path, root)) return;
    int fd = syscall(SYS_openat, AT_FDCWD, listed, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    int n = snprintf(line, sizeof line, "%s %s\n", names[__builtin_ctz(operation)], path);
    if (fd >= 0) { syscall(SYS_write, fd, line, n); syscall(SYS_close, fd); }
}

static void touched(int operation, const char* path) {
    int saved = errno;
    be_slow(operation, path);
    list(operation, path);
    errno = saved;
}

static void touched_fd(int operation, int fd) {
    char name[64], path[1024];
    int n;
    if (!(control && control->operations & operation) && syscall(SYS_gettid) != getpid()) return;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    n = syscall(SYS_readlinkat, AT_FDCWD, name, path, sizeof path - 1);
    if (n > 0 && path[0] == '/') { path[n] = 0; touched(operation, path); }
}

static mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

#define OPENS(name) \
    int name(const char* path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = mode_of(flags, rest); va_end(rest); \
        touched(OPEN, path); \
        return REAL(int, name, const char*, int, mode_t)(path, flags, mode); \
    }
#define OPENS_AT(name) \
    int name(int at, const char* path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = mode_of(flags, rest); va_end(rest); \
        touched(OPEN, path); \
        return REAL(int, name, int, const char*, int, mode_t)(at, path, flags, mode); \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

ssize_t write(int fd, const void* data, size_t n) { touched_fd(WRITE, fd); return REAL(ssize_t, write, int, const void*, size_t)(fd, data, n); }
ssize_t pwrite(int fd, const void* data, size_t n, off_t at) { touched_fd(WRITE, fd); return REAL(ssize_t, pwrite, int, const void*, size_t, off_t)(fd, data, n, at); }
ssize_t pwrite64(int fd, const void* data, size_t n, off_t at) { touched_fd(WRITE, fd); return REAL(ssize_t, pwrite64, int, const void*, size_t, off_t)(fd, data, n, at); }
ssize_t read(int fd, void* data, size_t n) { touched_fd(READ, fd); return REAL(ssize_t, read, int, void*, size_t)(fd, data, n); }
ssize_t pread(int fd, void* data, size_t n, off_t at) { touched_fd(READ, fd); return REAL(ssize_t, pread, int, void*, size_t, off_t)(fd, data, n, at); }
ssize_t pread64(int fd, void* data, size_t n, off_t at) { touched_fd(READ, fd); return REAL(ssize_t, pread64, int, void*, size_t, off_t)(fd, data, n, at); }
int fallocate(int fd, int mode, off_t at, off_t n) { touched_fd(WRITE, fd); return REAL(int, fallocate, int, int, off_t, off_t)(fd, mode, at, n); }
int fallocate64(int fd, int mode, off64_t at, off64_t n) { touched_fd(WRITE, fd); return REAL(int, fallocate64, int, int, off64_t, off64_t)(fd, mode, at, n); }
int fsync(int fd) { touched_fd(SYNC, fd); return REAL(int, fsync, int)(fd); }
int fdatasync(int fd) { touched_fd(SYNC, fd); return REAL(int, fdatasync, int)(fd); }
int ftruncate(int fd, off_t size) { touched_fd(TRUNCATE, fd); return REAL(int, ftruncate, int, off_t)(fd, size); }
int ftruncate64(int fd, off_t size) { touched_fd(TRUNCATE, fd); return REAL(int, ftruncate64, int, off_t)(fd, size); }
int rename(const char* from, const char* to) { touched(RENAME, from); return REAL(int, rename, const char*, const char*)(from, to); }
int renameat(int from_at, const char* from, int to_at, const char* to) {
    touched(RENAME, from);
    return REAL(int, renameat, int, const char*, int, const char*)(from_at, from, to_at, to);
}
ssize_t sendfile64(int out, int in, off64_t* at, size_t n) { touched_fd(READ, in); return REAL(ssize_t, sendfile64, int, int, off64_t*, size_t)(out, in, at, n); }
ssize_t sendfile(int out, int in, off_t* at, size_t n) { touched_fd(READ, in); return REAL(ssize_t, sendfile, int, int, off_t*, size_t)(out, in, at, n); }
int unlink(const char* path) { touched(UNLINK, path); return REAL(int, unlink, const char*)(path); }
int mkdir(const char* path, mode_t mode) { touched(MKDIR, path); return REAL(int, mkdir, const char*, mode_t)(path, mode); }
int rmdir(const char* path) { touched(RMDIR, path); return REAL(int, rmdir, const char*)(path); }
int stat(const char* restrict path, struct stat* restrict out) { touched(STAT, path); return REAL(int, stat, const char*, struct stat*)(path, out); }
int lstat(const char* restrict path, struct stat* restrict out) { touched(STAT, path); return REAL(int, lstat, const char*, struct stat*)(path, out); }
int statvfs(const char* restrict path, struct statvfs* restrict out) { touched(STAT, path); return REAL(int, statvfs, const char*, struct statvfs*)(path, out); }
int access(const char* path, int mode) { touched(STAT, path); return REAL(int, access, const char*, int)(path, mode); }
int truncate(const char* path, off_t size) { touched(TRUNCATE, path); return REAL(int, truncate, const char*, off_t)(path, size); }
DIR* opendir(const char* path) { touched(LIST, path); return REAL(DIR*, opendir, const char*)(path); }
