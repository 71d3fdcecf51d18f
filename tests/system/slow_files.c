/* Makes some files of a process slow, and lists the file operations of its main thread. Preloaded (LD_PRELOAD); see tests/system/slow_files.py.
 *
 * KAFKAPY_SLOW_FILES names a file. While it exists it holds "<ms> <text>": each operation on a path that contains the text takes that much longer.
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
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

/* System calls only: nothing here may come back to the functions below. */
static int read_small(const char* path, char* out, int size) {
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC), n;
    if (fd < 0) return -1;
    n = syscall(SYS_read, fd, out, size - 1);
    syscall(SYS_close, fd);
    out[n < 0 ? 0 : n] = 0;
    return n;
}

static void touched(const char* operation, const char* path) {
    int saved = errno;
    char text[512], line[1400];
    const char* slow = getenv("KAFKAPY_SLOW_FILES");
    const char* listed = getenv("KAFKAPY_LOOP_FILES");
    if (slow && read_small(slow, text, sizeof text) > 0) {
        char* at = strchr(text, ' ');
        if (at && strstr(path, at + 1)) {
            int ms = atoi(text);
            struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
            nanosleep(&t, NULL);
        }
    }
    if (listed && syscall(SYS_gettid) == getpid()) {
        snprintf(line, sizeof line, "%s.on", listed);
        const char* root = getenv("KAFKAPY_LOOP_ROOT");
        if (syscall(SYS_faccessat, AT_FDCWD, line, F_OK) == 0 && root && strstr(path, root)) {
            int fd = syscall(SYS_openat, AT_FDCWD, listed, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
            int n = snprintf(line, sizeof line, "%s %s\n", operation, path);
            if (fd >= 0) { syscall(SYS_write, fd, line, n); syscall(SYS_close, fd); }
        }
    }
    errno = saved;
}

static void touched_fd(const char* operation, int fd) {
    char name[64], path[1024];
    int n;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    n = syscall(SYS_readlinkat, AT_FDCWD, name, path, sizeof path - 1);
    if (n > 0 && path[0] == '/') { path[n] = 0; touched(operation, path); }
}

static mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

#define OPEN(name) \
    int name(const char* path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = mode_of(flags, rest); va_end(rest); \
        touched("open", path); \
        return REAL(int, name, const char*, int, mode_t)(path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int at, const char* path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = mode_of(flags, rest); va_end(rest); \
        touched("open", path); \
        return REAL(int, name, int, const char*, int, mode_t)(at, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void* data, size_t n) { touched_fd("write", fd); return REAL(ssize_t, write, int, const void*, size_t)(fd, data, n); }
ssize_t pwrite(int fd, const void* data, size_t n, off_t at) { touched_fd("write", fd); return REAL(ssize_t, pwrite, int, const void*, size_t, off_t)(fd, data, n, at); }
ssize_t pwrite64(int fd, const void* data, size_t n, off_t at) { touched_fd("write", fd); return REAL(ssize_t, pwrite64, int, const void*, size_t, off_t)(fd, data, n, at); }
ssize_t read(int fd, void* data, size_t n) { touched_fd("read", fd); return REAL(ssize_t, read, int, void*, size_t)(fd, data, n); }
ssize_t pread(int fd, void* data, size_t n, off_t at) { touched_fd("read", fd); return REAL(ssize_t, pread, int, void*, size_t, off_t)(fd, data, n, at); }
ssize_t pread64(int fd, void* data, size_t n, off_t at) { touched_fd("read", fd); return REAL(ssize_t, pread64, int, void*, size_t, off_t)(fd, data, n, at); }
int fsync(int fd) { touched_fd("sync", fd); return REAL(int, fsync, int)(fd); }
int fdatasync(int fd) { touched_fd("sync", fd); return REAL(int, fdatasync, int)(fd); }
int ftruncate(int fd, off_t size) { touched_fd("truncate", fd); return REAL(int, ftruncate, int, off_t)(fd, size); }
int ftruncate64(int fd, off_t size) { touched_fd("truncate", fd); return REAL(int, ftruncate64, int, off_t)(fd, size); }
int rename(const char* from, const char* to) { touched("rename", from); return REAL(int, rename, const char*, const char*)(from, to); }
int unlink(const char* path) { touched("unlink", path); return REAL(int, unlink, const char*)(path); }
int mkdir(const char* path, mode_t mode) { touched("mkdir", path); return REAL(int, mkdir, const char*, mode_t)(path, mode); }
int rmdir(const char* path) { touched("rmdir", path); return REAL(int, rmdir, const char*)(path); }
int stat(const char* restrict path, struct stat* restrict out) { touched("stat", path); return REAL(int, stat, const char*, struct stat*)(path, out); }
int lstat(const char* restrict path, struct stat* restrict out) { touched("stat", path); return REAL(int, lstat, const char*, struct stat*)(path, out); }
int statvfs(const char* restrict path, struct statvfs* restrict out) { touched("stat", path); return REAL(int, statvfs, const char*, struct statvfs*)(path, out); }
int access(const char* path, int mode) { touched("stat", path); return REAL(int, access, const char*, int)(path, mode); }
int truncate(const char* path, off_t size) { touched("truncate", path); return REAL(int, truncate, const char*, off_t)(path, size); }
DIR* opendir(const char* path) { touched("list", path); return REAL(DIR*, opendir, const char*)(path); }
