"""Threads of C: started without Python; Python's threads keep every signal."""

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <unistd.h>

    /* Those that a fault of this very thread raises stay: blocked, they would end the process without a report. */
    static inline void kp_block_all_signals(void) {
        sigset_t set;
        sigfillset(&set);
        sigdelset(&set, SIGSEGV); sigdelset(&set, SIGBUS); sigdelset(&set, SIGFPE); sigdelset(&set, SIGILL);
        sigdelset(&set, SIGTRAP); sigdelset(&set, SIGSYS); sigdelset(&set, SIGABRT);
        pthread_sigmask(SIG_BLOCK, &set, 0);
    }

    static inline void kp_name_thread(const char* name) { pthread_setname_np(pthread_self(), name); }
    """
    ctypedef unsigned long pthread_t
    void block_all_signals "kp_block_all_signals"()
    void name_thread "kp_name_thread"(const char* name)     # at most 15 characters
    # 0 or an errno.
    int pthread_create(pthread_t* thread, const void* attributes, void* (*body)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int getpid()
