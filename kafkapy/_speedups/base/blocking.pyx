"""Network threads, sections, and the monitor that replaces hanging threads (see blocking.pxd)."""

from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport (
    atomic_add,
    atomic_load,
    atomic_store,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_t,
    pthread_cond_wait,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.threads cimport block_all_signals, name_thread, pthread_create, pthread_t

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <sched.h>
    #include <setjmp.h>
    #include <unistd.h>
    static __thread void* kp_network_thread = 0;
    static inline void* kp_get_network_thread(void) { return kp_network_thread; }
    static inline void kp_set_network_thread(void* t) { kp_network_thread = t; }
    static inline int kp_swap_state(int64_t* p, int64_t from, int64_t to) {
        return __atomic_compare_exchange_n(p, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    /* What a thread does: one Processor after the other. Who gives up its stack comes back to the middle of it. */
    static void kp_thread_base(void* t, void** base, int (*one)(void*)) {
        jmp_buf here;
        *base = &here;
        (void)_setjmp(here);
        while (one(t)) { }
    }
    static inline void kp_jump(void* base) { _longjmp(*(jmp_buf*)base, 1); }
    static inline void kp_detach_self(void) { pthread_detach(pthread_self()); }
    """
    void* get_network_thread "kp_get_network_thread"()
    void set_network_thread "kp_set_network_thread"(void* t)
    bint swap_state "kp_swap_state"(int64_t* p, int64_t old, int64_t new)
    void thread_base "kp_thread_base"(void* t, void** base, int (*one)(void*) noexcept nogil)
    void jump "kp_jump"(void* base)
    void detach_self "kp_detach_self"()
    int sched_yield()
    int usleep(unsigned int microseconds)

cdef enum:
    TICK_US = 5000
    LOOKS = 3                       # at a thread in the same section before it is left behind: 10 to 15 ms, long enough
                                    # for a thread that has lost its core
    QUIET_TICKS = 40                # without a section, before the monitor sleeps
    SPARES_KEPT = 4
    MOST_ALONE = 64                 # threads left behind at one time; beyond, a hanging thread keeps its Processor

cdef cppclass Threads:
    pthread_mutex_t mutex
    pthread_cond_t wanted           # by the monitor
    vector[NetworkThread*] all
    vector[NetworkThread*] spare
    int64_t alone
    int64_t processors              # that run; the threads end with the last one
    bint monitored
    int64_t asleep                  # atomic: the next section must wake the monitor
    int64_t left_behind             # atomic: since the process started

# Never freed: threads use it as long as a Processor runs, and some a moment longer.
cdef Threads* team = new Threads()
pthread_mutex_init(&team.mutex, NULL)
pthread_cond_init(&team.wanted, NULL)
team.alone = 0
team.processors = 0
team.monitored = False
team.asleep = 0
team.left_behind = 0


def threads_left_behind():
    """How often a network thread lost its Processor to a spare since the process started."""
    return atomic_load(&team.left_behind)


# ---- the threads -----------------------------------------------------------------------------------------------------

cdef void forget_locked(NetworkThread* t) noexcept nogil:
    cdef size_t i
    for i in range(team.all.size()):
        if team.all[i] == t:
            team.all[i] = team.all.back()
            team.all.pop_back()
            break
    for i in range(team.spare.size()):
        if team.spare[i] == t:
            team.spare[i] = team.spare.back()
            team.spare.pop_back()
            break


cdef void send_home_locked() noexcept nogil:
    """No Processor is left: spares and the monitor end."""
    cdef size_t i
    for i in range(team.spare.size()):
        pthread_cond_signal(&team.spare[i].chosen)
    atomic_store(&team.asleep, 0)
    pthread_cond_signal(&team.wanted)


cdef int run_one(void* argument) noexcept nogil:
    """Waits for a Processor and runs it. 0: the thread is not needed any more."""
    cdef NetworkThread* t = <NetworkThread*>argument
    pthread_mutex_lock(&team.mutex)
    if atomic_load(&t.state) == THREAD_ALONE:
        team.alone -= 1
    t.may_leave = False
    atomic_store(&t.state, THREAD_RUNNING)
    if t.processor == NULL:
        if team.spare.size() < SPARES_KEPT:
            team.spare.push_back(t)
            while t.processor == NULL and team.processors:
                pthread_cond_wait(&t.chosen, &team.mutex)
        if t.processor == NULL:
            forget_locked(t)
            pthread_mutex_unlock(&team.mutex)
            return 0
    pthread_mutex_unlock(&team.mutex)
    t.run(t.processor)
    # It has ended, and may be gone.
    pthread_mutex_lock(&team.mutex)
    t.processor = NULL
    team.processors -= 1
    if team.processors == 0:
        send_home_locked()
    pthread_mutex_unlock(&team.mutex)
    return 1


cdef void* thread_body(void* argument) noexcept nogil:
    cdef NetworkThread* t = <NetworkThread*>argument
    block_all_signals()
    name_thread(b"kafka-network")
    detach_self()
    t.me = thread_self()
    set_network_thread(t)
    thread_base(t, &t.base, run_one)
    set_network_thread(NULL)
    pthread_cond_destroy(&t.chosen)
    del t
    return NULL


cdef int new_thread_locked(void* processor, separate_function separate, run_function run) noexcept nogil:
    cdef NetworkThread* t = new NetworkThread()
    cdef pthread_t thread
    cdef int failure
    t.state = THREAD_RUNNING
    t.section = -1
    t.seen = -1
    t.looks = 0
    t.me = 0
    t.may_leave = False
    t.slow = NULL
    t.counted = False
    t.processor = processor
    t.separate = separate
    t.run = run
    t.base = NULL
    pthread_cond_init(&t.chosen, NULL)
    failure = pthread_create(&thread, NULL, thread_body, t)
    if failure:
        pthread_cond_destroy(&t.chosen)
        del t
        return failure
    team.all.push_back(t)
    return 0


cdef int start_on_thread(void* processor, separate_function separate, run_function run) noexcept nogil:
    cdef pthread_t thread
    cdef int failure = 0
    pthread_mutex_lock(&team.mutex)
    if not team.monitored:
        failure = pthread_create(&thread, NULL, monitor, NULL)
        team.monitored = failure == 0
    if failure == 0:
        failure = new_thread_locked(processor, separate, run)
    if failure == 0:
        team.processors += 1
    pthread_mutex_unlock(&team.mutex)
    return failure


cdef NetworkThread* network_thread() noexcept nogil:
    return <NetworkThread*>get_network_thread()


cdef void become_spare(NetworkThread* t) noexcept nogil:
    jump(t.base)


# ---- sections --------------------------------------------------------------------------------------------------------

cdef NetworkThread* blocking_begin(int64_t* slow) noexcept nogil:
    cdef NetworkThread* t = <NetworkThread*>get_network_thread()
    if t == NULL or not t.may_leave or atomic_load(&t.state) == THREAD_ALONE:
        return NULL
    t.slow = slow
    atomic_store(&t.section, t.section + 2)
    atomic_store(&t.state, t.section)
    if atomic_load(&team.asleep):
        wake_monitor()
    if slow != NULL and atomic_load(slow) > 0:
        pthread_mutex_lock(&team.mutex)
        take_locked(t)
        pthread_mutex_unlock(&team.mutex)
    return t


cdef void blocking_end(NetworkThread* t) noexcept nogil:
    if t == NULL or swap_state(&t.state, t.section, THREAD_RUNNING):
        return
    while not swap_state(&t.state, t.section, THREAD_RUNNING):
        if atomic_load(&t.state) == THREAD_ALONE:
            if t.counted:
                t.counted = False
                atomic_add(t.slow, -1)
            return
        sched_yield()       # another thread is taking the Processor


cdef bint take_locked(NetworkThread* t) noexcept nogil:
    """Gives the Processor of a thread in a section to a spare. False: there is no spare, or the section has ended."""
    cdef NetworkThread* heir
    cdef int64_t section = atomic_load(&t.section)
    if team.spare.empty() or team.alone >= MOST_ALONE or not swap_state(&t.state, section, THREAD_TAKING):
        return False
    heir = team.spare.back()
    if not t.separate(t.processor, heir.me):
        atomic_store(&t.state, section)
        return False
    team.spare.pop_back()
    team.alone += 1
    atomic_add(&team.left_behind, 1)
    if t.slow != NULL:
        atomic_add(t.slow, 1)
        t.counted = True
    heir.separate = t.separate
    heir.run = t.run
    heir.processor = t.processor
    t.processor = NULL
    atomic_store(&t.state, THREAD_ALONE)
    pthread_cond_signal(&heir.chosen)
    return True


# ---- the monitor -----------------------------------------------------------------------------------------------------

cdef void wake_monitor() noexcept nogil:
    pthread_mutex_lock(&team.mutex)
    atomic_store(&team.asleep, 0)
    pthread_cond_signal(&team.wanted)
    pthread_mutex_unlock(&team.mutex)


cdef bint look_locked() noexcept nogil:
    """True when a section was entered, or is still open, since the last look."""
    cdef NetworkThread* t
    cdef bint busy = False, hangs = False
    cdef int64_t section, state
    cdef size_t i
    for i in range(team.all.size()):
        t = team.all[i]
        if t.processor == NULL:
            continue
        state = atomic_load(&t.state)
        section = atomic_load(&t.section)
        if section != t.seen:
            t.seen = section
            t.looks = 0
            busy = True
        if state > 0:
            busy = True
            hangs = True
            t.looks += 1
            if t.looks >= LOOKS:
                take_locked(t)
    # A spare is there before it is needed; several when one was.
    if hangs and <int64_t>team.spare.size() < (1 if atomic_load(&team.left_behind) == 0 else 2):
        if team.alone < MOST_ALONE and new_thread_locked(NULL, NULL, NULL) == EAGAIN:
            pass            # no more threads: the hanging thread keeps its Processor
    return busy


cdef void* monitor(void* argument) noexcept nogil:
    cdef int quiet = 0
    cdef bint busy
    block_all_signals()
    name_thread(b"kafka-monitor")
    detach_self()
    while True:
        usleep(TICK_US)
        pthread_mutex_lock(&team.mutex)
        if team.processors == 0:
            team.monitored = False
            atomic_store(&team.asleep, 0)
            pthread_mutex_unlock(&team.mutex)
            return NULL
        busy = look_locked()
        quiet = 0 if busy else quiet + 1
        if quiet == QUIET_TICKS:
            # A thread that entered a section before it could see this shows it by the next tick.
            atomic_store(&team.asleep, 1)
        elif quiet > QUIET_TICKS:
            while atomic_load(&team.asleep) and team.processors:
                pthread_cond_wait(&team.wanted, &team.mutex)
            quiet = 0
        elif busy:
            atomic_store(&team.asleep, 0)
        pthread_mutex_unlock(&team.mutex)
