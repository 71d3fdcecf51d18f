/* Ends a process in which a kernel unlocks a mutex that its thread does not hold, or locks one that it holds. Preloaded
 * (LD_PRELOAD) by tests/log/test_mutex_owners.py.
 *
 * The kernels' mutexes become those that check; other libraries' are left as they are. At the end the process says how
 * many there were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLER __builtin_return_address(0)

static int (*real_init)(pthread_mutex_t*, const pthread_mutexattr_t*);
static int (*real_lock)(pthread_mutex_t*);
static int (*real_unlock)(pthread_mutex_t*);
static atomic_long checked;

__attribute__((constructor)) static void find(void) {
    real_init = (int (*)(pthread_mutex_t*, const pthread_mutexattr_t*))dlsym(RTLD_NEXT, "pthread_mutex_init");
    real_lock = (int (*)(pthread_mutex_t*))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    real_unlock = (int (*)(pthread_mutex_t*))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
}

__attribute__((destructor)) static void tell(void) {
    fprintf(stderr, "%ld mutexes were checked\n", atomic_load(&checked));
}

/* The kernel's file, NULL for code elsewhere. */
static const char* kernel_of(void* caller) {
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname ? strstr(info.dli_fname, "kafkapy/_speedups/") : NULL;
}

static void judge(int result, void* caller, const char* what) {
    const char* kernel = result ? kernel_of(caller) : NULL;
    if (!kernel) return;
    fprintf(stderr, "%s %s\n", kernel, what);
    abort();
}

int pthread_mutex_init(pthread_mutex_t* mutex, const pthread_mutexattr_t* attributes) {
    pthread_mutexattr_t checking;
    int result;
    if (!real_init) find();
    if (attributes || !kernel_of(CALLER)) return real_init(mutex, attributes);
    atomic_fetch_add(&checked, 1);
    pthread_mutexattr_init(&checking);
    pthread_mutexattr_settype(&checking, PTHREAD_MUTEX_ERRORCHECK);
    result = real_init(mutex, &checking);
    pthread_mutexattr_destroy(&checking);
    return result;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
    int result;
    if (!real_lock) find();
    result = real_lock(mutex);
    judge(result, CALLER, "locks a mutex that it holds");
    return result;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
    int result;
    if (!real_unlock) find();
    result = real_unlock(mutex);
    judge(result, CALLER, "unlocks a mutex that it does not hold");
    return result;
}
