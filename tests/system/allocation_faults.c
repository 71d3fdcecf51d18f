/* Makes allocations of the broker's own threads fail: preloaded, steered by another process through a file that both map.

   Python's own threads and the control loop are left alone; those of C are known by their names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef struct {
    int64_t countdown;  /* the allocation that fails, counted from 1 on; 0: none */
    int64_t times;      /* how many fail from there on */
    int64_t least;      /* bytes; smaller ones are neither counted nor refused */
    int64_t seen;       /* allocations since the last arming */
    int64_t refused;
    int64_t wanted;     /* 1: the next allocation is to say how much is in use */
    int64_t in_use;     /* bytes that were allocated and not freed, of all threads */
} Orders;

static Orders* orders;
static char prefix[16];

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);

__attribute__((constructor)) static void begin(void) {
    const char* path = getenv("ALLOCATION_FAULTS");
    const char* name = getenv("ALLOCATION_FAULTS_THREADS");
    int fd = path ? open(path, O_RDWR) : -1;
    if (fd < 0 || !name) return;
    strncpy(prefix, name, sizeof(prefix) - 1);
    void* at = mmap(0, sizeof(Orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) orders = at;
}

static int refused(size_t size) {
    char name[16] = "";
    int64_t number, first;
    if (!orders || !(first = __atomic_load_n(&orders->countdown, __ATOMIC_ACQUIRE)) || (int64_t)size < orders->least) return 0;
    prctl(PR_GET_NAME, name);
    if (strncmp(name, prefix, strlen(prefix))) return 0;
    number = __atomic_add_fetch(&orders->seen, 1, __ATOMIC_ACQ_REL);
    if (number < first || number >= first + orders->times) return 0;
    __atomic_add_fetch(&orders->refused, 1, __ATOMIC_ACQ_REL);
    errno = ENOMEM;
    return 1;
}

static void count(void) {
    if (!orders || !__atomic_load_n(&orders->wanted, __ATOMIC_ACQUIRE)) return;
    struct mallinfo2 all = mallinfo2();
    orders->in_use = (int64_t)(all.uordblks + all.hblkhd);
    __atomic_store_n(&orders->wanted, 0, __ATOMIC_RELEASE);
}

void* malloc(size_t size) {
    count();
    return refused(size) ? 0 : __libc_malloc(size);
}
void* calloc(size_t n, size_t size) { return refused(n * size) ? 0 : __libc_calloc(n, size); }
void* realloc(void* data, size_t size) { return size && refused(size) ? 0 : __libc_realloc(data, size); }
