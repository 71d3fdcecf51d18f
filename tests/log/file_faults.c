/* Counts, records and spoils the file operations of a process below one directory. Preloaded (LD_PRELOAD); driven by tests/log/file_faults.py
 * through ctypes.
 *
 * Every operation on a path below the root, or on a descriptor opened there, has a number, from 1 on. The one with the number that was armed
 * fails as its kind says. What succeeded is appended to a journal in memory, from which the test makes the states that a kill or a power failure
 * at any point would leave. An entry: struct entry, the first path, the second path or the data.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, RMDIR, CLOSE, UTIME, READ, MMAP, LOOK };
enum { NOTHING, EIO_ONCE, EIO_FROM_HERE, FULL_FROM_HERE, SHORT_ONCE, SHORT_THEN_FULL, DISK_FROM_HERE };
/* A kind from here on is times * SHORTAGE + errno: so many operations in a row fail with that errno, and then it is over. */
enum { SHORTAGE = 1000 };
enum { MAX_FD = 4096, JOURNAL = 1 << 24, MAX_DISKS = 16, ROOT = MAX_DISKS + 1 };

struct entry { int32_t op, fd; int64_t a, number; int32_t size1, size2; };

static char root[1024];
static size_t root_size;
static uint8_t tracked[MAX_FD];         /* the disk that the file is on, 0: not below the root */
static char disks[MAX_DISKS][256];      /* directories in the root: each stands for a disk */
static int dead_disk;
static int64_t count, armed_at;
static int armed_kind;
static uint8_t* journal;
static int64_t journal_size;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))next_of(#name))
static void* next_of(const char* name) { return dlsym(RTLD_NEXT, name); }

void faults_root(const char* path) {
    root_size = strlen(path);
    memcpy(root, path, root_size + 1);
    memset(tracked, 0, sizeof tracked);
    if (!journal) journal = malloc(JOURNAL);
    memset(disks, 0, sizeof disks);
    journal_size = count = armed_at = dead_disk = 0;
}
void faults_arm(int64_t at, int kind) { armed_at = at; armed_kind = kind; }
int64_t faults_count(void) { return count; }
const uint8_t* faults_journal(void) { return journal; }
int64_t faults_journal_size(void) { return journal_size; }

static int below(const char* path) {
    return root_size && !strncmp(path, root, root_size) && (path[root_size] == '/' || path[root_size] == 0);
}
static int absolute(int at, const char* path, char* out) {
    char link[64], base[2048];
    if (path[0] == '/') { snprintf(out, 4096, "%s", path); return below(out); }
    if (at == AT_FDCWD || !root_size) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t n = readlink(link, base, sizeof base - 1);
    if (n < 0) return 0;
    base[n] = 0;
    snprintf(out, 4096, "%s/%s", base, path);
    return below(out);
}
static int disk_of(const char* path) {
    const char* name = path + root_size + (path[root_size] == '/');
    size_t size = strcspn(name, "/");
    if (!size || size >= sizeof disks[0]) return ROOT;
    for (int i = 0; i < MAX_DISKS; i++) {
        if (!disks[i][0]) memcpy(disks[i], name, size);
        if (!strncmp(disks[i], name, size) && !disks[i][size]) return i + 1;
    }
    return ROOT;
}
static int known(int fd) { return fd >= 0 && fd < MAX_FD && tracked[fd]; }

static void record(int64_t number, int op, int fd, int64_t a, const void* one, size_t size1, const void* two, size_t size2) {
    struct entry e = { op, fd, a, number, (int32_t)size1, (int32_t)size2 };
    pthread_mutex_lock(&lock);
    if (journal_size + (int64_t)(sizeof e + size1 + size2) > JOURNAL) abort();
    memcpy(journal + journal_size, &e, sizeof e);
    if (size1) memcpy(journal + journal_size + sizeof e, one, size1);
    if (size2) memcpy(journal + journal_size + sizeof e + size1, two, size2);
    journal_size += (int64_t)(sizeof e + size1 + size2);
    pthread_mutex_unlock(&lock);
}
void faults_mark(int64_t what) { if (journal) record(count, 0, 0, what, 0, 0, 0, 0); }

/* The errno that this operation has to fail with, or 0; -1 for a write that takes half. */
static int fault(int op, int64_t* number, int takes_space, int disk) {
    int64_t n = *number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (!armed_at || n < armed_at) return 0;
    if (armed_kind >= SHORTAGE) return n < armed_at + armed_kind / SHORTAGE ? armed_kind % SHORTAGE : 0;
    if (n == armed_at) {
        switch (armed_kind) {
        case EIO_ONCE: case EIO_FROM_HERE: return EIO;
        case FULL_FROM_HERE: return takes_space ? ENOSPC : 0;
        case SHORT_ONCE: case SHORT_THEN_FULL: return op == WRITE ? -1 : 0;
        case DISK_FROM_HERE: dead_disk = disk; return EIO;
        }
        return 0;
    }
    if (armed_kind == EIO_FROM_HERE || (armed_kind == DISK_FROM_HERE && disk == dead_disk)) return EIO;
    return (armed_kind == FULL_FROM_HERE || armed_kind == SHORT_THEN_FULL) && takes_space ? ENOSPC : 0;
}
#define FAIL_IF(problem) do { int p_ = (problem); if (p_ > 0) { errno = p_; return -1; } } while (0)

static int open_any(int at, const char* path, int flags, mode_t mode) {
    char full[4096];
    int64_t number;
    int fd, new_one = (flags & (O_CREAT | O_TRUNC | O_RDWR | O_WRONLY)) != 0;
    if (!absolute(at, path, full)) return REAL(int, openat, int, const char*, int, mode_t)(at, path, flags, mode);
    FAIL_IF(fault(OPEN, &number, (flags & O_CREAT) && access(full, F_OK) != 0, disk_of(full)));
    int created = (flags & O_CREAT) && access(full, F_OK) != 0;
    fd = REAL(int, openat, int, const char*, int, mode_t)(at, path, flags, mode);
    if (fd >= 0 && fd < MAX_FD) tracked[fd] = (uint8_t)disk_of(full);
    if (fd >= 0) record(number, OPEN, fd, (created ? 1 : 0) | (flags & O_TRUNC ? 2 : 0), full, strlen(full), 0, 0);
    else record(number, LOOK, new_one, 0, full, strlen(full), 0, 0);
    return fd;
}
#define MODE_OF(flags) mode_t mode = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list l; va_start(l, flags); mode = va_arg(l, mode_t); va_end(l); }
int open(const char* path, int flags, ...) { MODE_OF(flags) return open_any(AT_FDCWD, path, flags, mode); }
int open64(const char* path, int flags, ...) { MODE_OF(flags) return open_any(AT_FDCWD, path, flags, mode); }
int openat(int at, const char* path, int flags, ...) { MODE_OF(flags) return open_any(at, path, flags, mode); }
int openat64(int at, const char* path, int flags, ...) { MODE_OF(flags) return open_any(at, path, flags, mode); }
int close(int fd) {
    if (known(fd)) { tracked[fd] = 0; record(count, CLOSE, fd, 0, 0, 0, 0, 0); }
    return REAL(int, close, int)(fd);
}

static ssize_t pwrite_any(int fd, const void* data, size_t size, off64_t at) {
    int64_t number;
    int problem = fault(WRITE, &number, 1, tracked[fd]);
    FAIL_IF(problem);
    if (problem < 0) { if (size < 2) { errno = ENOSPC; return -1; } size /= 2; }
    ssize_t n = REAL(ssize_t, pwrite64, int, const void*, size_t, off64_t)(fd, data, size, at);
    if (n > 0) record(number, WRITE, fd, at, 0, 0, data, (size_t)n);
    return n;
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
    return known(fd) ? pwrite_any(fd, data, size, at) : REAL(ssize_t, pwrite64, int, const void*, size_t, off64_t)(fd, data, size, at);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }
ssize_t write(int fd, const void* data, size_t size) {
    int64_t number;
    if (!known(fd)) return REAL(ssize_t, write, int, const void*, size_t)(fd, data, size);
    int problem = fault(WRITE, &number, 1, tracked[fd]);
    FAIL_IF(problem);
    if (problem < 0) { if (size < 2) { errno = ENOSPC; return -1; } size /= 2; }
    ssize_t n = REAL(ssize_t, write, int, const void*, size_t)(fd, data, size);
    if (n > 0) record(number, WRITE, fd, lseek64(fd, 0, SEEK_CUR) - n, 0, 0, data, (size_t)n);
    return n;
}
ssize_t writev(int fd, const struct iovec* parts, int n) {
    if (known(fd)) abort();         /* nothing uses it yet; it would have to be recorded */
    return REAL(ssize_t, writev, int, const struct iovec*, int)(fd, parts, n);
}
ssize_t pread64(int fd, void* data, size_t size, off64_t at) {
    int64_t number;
    if (known(fd)) { FAIL_IF(fault(READ, &number, 0, tracked[fd])); record(number, READ, fd, at, 0, 0, 0, 0); }
    return REAL(ssize_t, pread64, int, void*, size_t, off64_t)(fd, data, size, at);
}
ssize_t pread(int fd, void* data, size_t size, off_t at) { return pread64(fd, data, size, at); }
ssize_t read(int fd, void* data, size_t size) {
    int64_t number;
    if (known(fd)) { FAIL_IF(fault(READ, &number, 0, tracked[fd])); record(number, READ, fd, -1, 0, 0, 0, 0); }
    return REAL(ssize_t, read, int, void*, size_t)(fd, data, size);
}
int ftruncate64(int fd, off64_t size) {
    int64_t number;
    if (!known(fd)) return REAL(int, ftruncate64, int, off64_t)(fd, size);
    FAIL_IF(fault(TRUNCATE, &number, 0, tracked[fd]));
    int result = REAL(int, ftruncate64, int, off64_t)(fd, size);
    if (!result) record(number, TRUNCATE, fd, size, 0, 0, 0, 0);
    return result;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int fallocate64(int fd, int mode, off64_t at, off64_t size) {
    int64_t number;
    if (known(fd)) {
        if (mode != FALLOC_FL_KEEP_SIZE) abort();       /* others change what the file has */
        FAIL_IF(fault(TRUNCATE, &number, 1, tracked[fd]));
    }
    return REAL(int, fallocate64, int, int, off64_t, off64_t)(fd, mode, at, size);
}
int fallocate(int fd, int mode, off_t at, off_t size) { return fallocate64(fd, mode, at, size); }
static int sync_any(const char* name, int fd) {
    int64_t number;
    if (known(fd)) { FAIL_IF(fault(SYNC, &number, 0, tracked[fd])); record(number, SYNC, fd, 0, 0, 0, 0, 0); return 0; }
    return ((int (*)(int))next_of(name))(fd);
}
int fsync(int fd) { return sync_any("fsync", fd); }
int fdatasync(int fd) { return sync_any("fdatasync", fd); }
void* mmap64(void* at, size_t size, int protection, int flags, int fd, off64_t offset) {
    int64_t number;
    if (known(fd)) {
        int problem = fault(MMAP, &number, 0, tracked[fd]);
        if (problem > 0) { errno = problem; return MAP_FAILED; }
        if (protection & PROT_WRITE && flags & MAP_SHARED) abort();     /* writes by way of a map would not be seen */
        record(number, MMAP, fd, (int64_t)size, 0, 0, 0, 0);
    }
    return REAL(void*, mmap64, void*, size_t, int, int, int, off64_t)(at, size, protection, flags, fd, offset);
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
    return mmap64(at, size, protection, flags, fd, offset);
}
static int rename_any(int from_at, const char* from, int to_at, const char* to) {
    char full[4096], target[4096];
    int64_t number;
    if (!absolute(from_at, from, full)) return REAL(int, renameat, int, const char*, int, const char*)(from_at, from, to_at, to);
    absolute(to_at, to, target);
    FAIL_IF(fault(RENAME, &number, 1, disk_of(full)));
    int result = REAL(int, renameat, int, const char*, int, const char*)(from_at, from, to_at, to);
    record(number, result ? LOOK : RENAME, 0, 0, full, strlen(full), target, strlen(target));
    return result;
}
int rename(const char* from, const char* to) { return rename_any(AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int from_at, const char* from, int to_at, const char* to) { return rename_any(from_at, from, to_at, to); }
static int unlink_any(int at, const char* path, int flags) {
    char full[4096];
    int64_t number;
    if (!absolute(at, path, full)) return REAL(int, unlinkat, int, const char*, int)(at, path, flags);
    FAIL_IF(fault(UNLINK, &number, 0, disk_of(full)));
    int result = REAL(int, unlinkat, int, const char*, int)(at, path, flags);
    record(number, result ? LOOK : flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, full, strlen(full), 0, 0);
    return result;
}
int unlink(const char* path) { return unlink_any(AT_FDCWD, path, 0); }
int unlinkat(int at, const char* path, int flags) { return unlink_any(at, path, flags); }
int rmdir(const char* path) { return unlink_any(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int at, const char* path, mode_t mode) {
    char full[4096];
    int64_t number;
    if (!absolute(at, path, full)) return REAL(int, mkdirat, int, const char*, mode_t)(at, path, mode);
    FAIL_IF(fault(MKDIR, &number, 1, disk_of(full)));
    int result = REAL(int, mkdirat, int, const char*, mode_t)(at, path, mode);
    record(number, result ? LOOK : MKDIR, 0, 0, full, strlen(full), 0, 0);
    return result;
}
int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
int utimensat(int at, const char* path, const struct timespec times[2], int flags) {
    char full[4096];
    int64_t number;
    if (absolute(at, path, full)) {
        FAIL_IF(fault(UTIME, &number, 0, disk_of(full)));
        record(number, UTIME, 0, 0, full, strlen(full), 0, 0);
    }
    return REAL(int, utimensat, int, const char*, const struct timespec*, int)(at, path, times, flags);
}
