"""The share partitions of this broker for Python (see table.pxd)."""

cimport cython
from cython.operator cimport dereference, preincrement
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset
from libcpp.set cimport set as ordered_set
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector
from posix.unistd cimport close as close_fd

from kafkapy._speedups.base.error_codes cimport ERROR_NOT_LEADER_OR_FOLLOWER
from kafkapy._speedups.base.posix cimport (
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    atomic_count,
    atomic_load,
    atomic_store,
    eventfd,
    eventfd_read,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_unlock,
)
from kafkapy._speedups.base.seeded_hash cimport SeededHash
from kafkapy._speedups.requests.data_plane cimport DataPlane
from kafkapy._speedups.requests.share.entries cimport (
    ENTRY_LOADING,
    ENTRY_READY,
    EndedMemberPointer,
    EntryIds,
    HandedWrite,
    ShareCounters,
    ShareEntry,
    ShareSettings,
    all_entries,
    close_entries,
    entry_of_id,
    entry_unref,
    readable_end,
    release_sessions,
    release_some,
    share_changed,
    share_clock_ms,
    share_dirty,
    share_entry_close,
    share_entry_find,
    share_entry_state,
    share_move_start,
    share_time,
    signal_python,
    take_some,
    wake_unseen_locked,
)
from kafkapy._speedups.requests.share.session cimport (
    ShareSessionPointer,
    session_cache_init,
    share_session_unref,
    share_sessions_take,
)
from kafkapy._speedups.requests.share.state_write cimport StateWrite, state_write
from kafkapy._speedups.share.layout cimport AcquiredRange, ShareDescription, ShareWrite, StateBatch
from kafkapy._speedups.share.partition cimport (
    SharePartitionState,
    share_archiving,
    share_configure,
    share_dead_lettered,
    share_describe,
    share_expire,
    share_new,
    share_take_write,
    share_unref,
)

cdef enum:
    TOPIC_ID_SIZE = 16
    MAX_ENTRIES = 500000
    HANDED_A_TURN = 2000
    SWEPT_A_TURN = 5000

cdef pthread_mutex_t idle_mutex
pthread_mutex_init(&idle_mutex, NULL)
cdef vector[ShareTableState*] idle      # of tables that are closed: see entries.pxd


cdef ShareTableState* table_new(int64_t max_sessions, int64_t max_partitions) noexcept nogil:
    cdef ShareTableState* table = NULL
    cdef int fd
    pthread_mutex_lock(&idle_mutex)
    if not idle.empty():
        table = idle.back()
        idle.pop_back()
    pthread_mutex_unlock(&idle_mutex)
    fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    if table == NULL:
        table = new ShareTableState()
        pthread_mutex_init(&table.mutex, NULL)
        session_cache_init(&table.sessions, max_sessions, max_partitions)
        table.next_id = 0
    table.sessions.max_sessions = max_sessions
    table.sessions.max_partitions = max_partitions
    table.sessions.evictions = 0
    table.enabled = 0
    table.lock_ms = 30000
    table.max_entries = MAX_ENTRIES
    memset(&table.counters, 0, sizeof(table.counters))
    pthread_mutex_lock(&table.mutex)
    table.event_fd = fd
    table.signalled = False
    table.open = fd >= 0
    pthread_mutex_unlock(&table.mutex)
    return table


cdef ShareSettings settings_of(tuple settings) except *:
    cdef ShareSettings found
    lock_ms, max_in_flight, delivery_limit, dead_letters, read_committed, renews = settings
    found.limits.lock_ms = lock_ms
    found.limits.max_in_flight = max_in_flight
    found.limits.delivery_limit = delivery_limit
    found.limits.dead_letters = dead_letters
    found.read_committed = read_committed
    found.renews = renews
    return found


@cython.no_gc_clear
cdef class ShareTable:
    """Owns the share partitions and share sessions of one broker. The control loop watches `fileno()` and calls `take`;
    every Processor uses the table without the GIL. It sets itself into the DataPlane, which keeps it alive."""

    def __cinit__(self, DataPlane plane not None, int64_t max_sessions=2000, int64_t max_partitions=500_000):
        """max_sessions: group.share.max.share.sessions; max_partitions: over all sessions."""
        self.state = table_new(max_sessions, max_partitions)
        if self.state.event_fd < 0:
            raise OSError("no eventfd can be had for the share partitions")
        plane.state.shares = self.state
        plane.shares = self

    def __dealloc__(self):
        if self.state == NULL:
            return
        self.close()
        with nogil:
            pthread_mutex_lock(&idle_mutex)
            idle.push_back(self.state)
            pthread_mutex_unlock(&idle_mutex)

    def close(self):
        """Ends all sessions and share partitions. Their requests get NOT_LEADER_OR_FOLLOWER."""
        cdef vector[ShareSessionPointer] sessions
        cdef vector[string] emptied
        cdef vector[int64_t] ids
        cdef vector[EndedMemberPointer] ended
        cdef vector[HandedWrite] handed
        cdef int fd
        cdef uint64_t value
        cdef size_t i
        with nogil:
            share_sessions_take(&self.state.sessions, NULL, -1, share_clock_ms(), &sessions, &emptied)
            for i in range(sessions.size()):
                share_session_unref(sessions[i])
            pthread_mutex_lock(&self.state.mutex)
            fd = self.state.event_fd
            self.state.open = False
            self.state.event_fd = -1
            self.state.loads.clear()
            self.state.dirty.clear()
            self.state.emptied.clear()
            self.state.timers.clear()
            ended.swap(self.state.ended)
            handed.swap(self.state.handed)
            pthread_mutex_unlock(&self.state.mutex)
            for i in range(ended.size()):
                del ended[i]
            for i in range(handed.size()):
                entry_unref(handed[i].entry)
                del handed[i].write
            all_entries(self.state, &ids)
            close_entries(self.state, &ids, ERROR_NOT_LEADER_OR_FOLLOWER)
            if fd >= 0:
                eventfd_read(fd, &value)
                close_fd(fd)

    def fileno(self):
        """The eventfd, readable when `take` has something."""
        return self.state.event_fd

    def __len__(self):
        """The number of share partitions."""
        cdef size_t count
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            count = self.state.by_id.size()
            pthread_mutex_unlock(&self.state.mutex)
        return count

    @property
    def enabled(self):
        """Whether share groups are served (share.version >= 1); else requests get UNSUPPORTED_VERSION."""
        return bool(atomic_load(&self.state.enabled))

    @enabled.setter
    def enabled(self, bint value):
        atomic_store(&self.state.enabled, value)

    @property
    def lock_ms(self):
        """group.share.record.lock.duration.ms, for replies that know no group's own."""
        return atomic_load(&self.state.lock_ms)

    @lock_ms.setter
    def lock_ms(self, int64_t value):
        atomic_store(&self.state.lock_ms, value)

    @property
    def max_entries(self):
        """The most share partitions at a time."""
        return self.state.max_entries

    @max_entries.setter
    def max_entries(self, int64_t value):
        self.state.max_entries = value

    # ---- work for Python ----

    def take(self):
        """(loads, writes, emptied): the share partitions whose state must be read, as (id, group, topic, topic id,
        partition, leader epoch); the writes of all dirty ones, and those that a lease could not store; the groups whose
        last session has ended. Bounded: the eventfd is readable again when there are more."""
        cdef vector[int64_t] loads
        cdef vector[int64_t] dirty
        cdef vector[string] emptied
        cdef uint64_t value
        cdef ShareEntry* entry
        cdef StateWrite write
        cdef bytes text
        cdef bint more
        cdef size_t i
        with nogil:
            if self.state.event_fd >= 0:
                eventfd_read(self.state.event_fd, &value)
            pthread_mutex_lock(&self.state.mutex)
            more = take_some(&self.state.loads, &loads)
            more |= take_some(&self.state.dirty, &dirty)
            emptied.swap(self.state.emptied)
            self.state.signalled = False
            pthread_mutex_unlock(&self.state.mutex)
            more |= release_some(self.state)
            if more:
                signal_python(self.state)
        asked = []
        for i in range(loads.size()):
            entry = entry_of_id(self.state, loads[i])
            if entry != NULL:
                atomic_count(&self.state.counters.loads, 1)
                asked.append((
                    entry.id,
                    (<bytes>entry.group).decode("utf-8", "replace"),
                    (<bytes>entry.log.topic).decode(),
                    (<const char*>entry.topic_id)[:TOPIC_ID_SIZE],
                    entry.partition,
                    entry.leader_epoch,
                ))
                with nogil:
                    entry_unref(entry)
        writes = []
        self.take_handed(writes)
        for i in range(dirty.size()):
            write = self.next_write(dirty[i])
            if write is not None:
                writes.append(write)
        groups = []
        for i in range(emptied.size()):
            text = emptied[i]
            groups.append(text.decode("utf-8", "replace"))
        return asked, writes, groups

    cdef int take_handed(self, list writes) except -1:
        """The writes that network threads could not store, some of them at a time; see take_some."""
        cdef HandedWrite handed
        cdef bint more
        cdef bint open = False
        cdef int count = 0
        while True:
            with nogil:
                pthread_mutex_lock(&self.state.mutex)
                more = not self.state.handed.empty()
                if more and count < HANDED_A_TURN:
                    handed = self.state.handed.back()
                    self.state.handed.pop_back()
                pthread_mutex_unlock(&self.state.mutex)
                if more and count < HANDED_A_TURN:
                    pthread_mutex_lock(&handed.entry.mutex)
                    open = handed.entry.status == ENTRY_READY
                    pthread_mutex_unlock(&handed.entry.mutex)
            if not more:
                return 0
            if count == HANDED_A_TURN:
                with nogil:
                    signal_python(self.state)
                return 0
            count += 1
            if open:
                atomic_count(&self.state.counters.writes, 1)
                writes.append(state_write(self, self.state, handed.entry, handed.write))
            else:
                # Whoever closed it has answered, and wants nothing written.
                with nogil:
                    entry_unref(handed.entry)
                del handed.write

    cdef StateWrite next_write(self, int64_t id):
        cdef ShareEntry* entry
        cdef ShareWrite* content
        cdef bint taken = False
        content = new ShareWrite()
        with nogil:
            entry = entry_of_id(self.state, id)
            if entry != NULL:
                pthread_mutex_lock(&entry.mutex)
                entry.dirty = False
                if entry.status == ENTRY_READY:
                    taken = share_take_write(entry.share, content)
                    entry.writing = taken
                pthread_mutex_unlock(&entry.mutex)
                if not taken:
                    entry_unref(entry)
        if not taken:
            del content
            return None
        atomic_count(&self.state.counters.writes, 1)
        return state_write(self, self.state, entry, content)

    def loaded(self, int64_t id, int32_t state_epoch, tuple settings, int64_t start_offset, batches):
        """Gives a share partition its state: settings as in `configure`, batches as (first, last, state, delivery
        count). False when nobody wants it any more; ValueError for a state that cannot be."""
        cdef ShareEntry* entry
        cdef SharePartitionState* share
        cdef ShareSettings wanted = settings_of(settings)
        cdef vector[StateBatch] restored
        cdef StateBatch batch
        for first, last, state, delivery_count in batches:
            batch.first = first
            batch.last = last
            batch.state = state
            batch.delivery_count = delivery_count
            restored.push_back(batch)
        with nogil:
            entry = entry_of_id(self.state, id)
        if entry == NULL:
            return False
        with nogil:
            share = share_new(state_epoch, entry.leader_epoch, &wanted.limits, start_offset, restored.data(),
                              restored.size())
            if share == NULL:
                entry_unref(entry)
            else:
                pthread_mutex_lock(&entry.mutex)
                if entry.status == ENTRY_LOADING:
                    entry.share = share
                    entry.settings = wanted
                    entry.status = ENTRY_READY
                    entry.generation += 1
                else:
                    share_unref(share)
                wake_unseen_locked(entry)       # it wakes the next one
                pthread_mutex_unlock(&entry.mutex)
                entry_unref(entry)
        if share == NULL:
            raise ValueError(f"share partition {id} cannot have such a state")
        return True

    def load_failed(self, int64_t id, int16_t error):
        """Gives an error to all who wait for a share partition; the next fetch loads it again."""
        cdef ShareEntry* entry
        atomic_count(&self.state.counters.load_failures, 1)
        with nogil:
            entry = entry_of_id(self.state, id)
            if entry != NULL:
                share_entry_close(self.state, entry, error)
                entry_unref(entry)

    def expire(self):
        """Ends locks whose time is over."""
        cdef int64_t now = share_clock_ms()
        cdef vector[int64_t] due
        cdef ShareEntry* entry
        cdef bint ended
        cdef size_t i
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            while not self.state.timers.empty() and dereference(self.state.timers.begin()).first <= now:
                due.push_back(dereference(self.state.timers.begin()).second)
                self.state.timers.erase(self.state.timers.begin())
            pthread_mutex_unlock(&self.state.mutex)
            for i in range(due.size()):
                entry = entry_of_id(self.state, due[i])
                if entry == NULL:
                    continue
                ended = False
                pthread_mutex_lock(&entry.mutex)
                entry.timed = False
                if entry.status == ENTRY_READY:
                    ended = share_expire(entry.share, now)
                pthread_mutex_unlock(&entry.mutex)
                if ended:
                    atomic_count(&self.state.counters.expired, 1)
                    share_dirty(self.state, entry)
                    share_changed(self.state, entry)
                share_time(self.state, entry)
                entry_unref(entry)

    def sweep(self, int64_t unused_ms=-1):
        """Closes share partitions of lost leaderships, and sessions unused for longer than unused_ms (-1: none).
        Archives records below the starts of the logs. True: the call looked at a bounded number of share partitions,
        and the next ones go on; sessions end with the first."""
        cdef vector[ShareSessionPointer] sessions
        cdef vector[string] emptied
        cdef ShareEntry* entry
        cdef int64_t end
        cdef int64_t start
        cdef int looks = 0
        with nogil:
            if self.unswept.empty():
                all_entries(self.state, &self.unswept)
                if unused_ms >= 0:
                    share_sessions_take(&self.state.sessions, NULL, unused_ms, share_clock_ms(), &sessions, &emptied)
                    release_sessions(self.state, &sessions, &emptied)
            while looks < SWEPT_A_TURN and not self.unswept.empty():
                looks += 1
                entry = entry_of_id(self.state, self.unswept.back())
                self.unswept.pop_back()
                if entry == NULL:
                    continue
                if not readable_end(entry, &end):
                    share_entry_close(self.state, entry, ERROR_NOT_LEADER_OR_FOLLOWER)
                else:
                    pthread_mutex_lock(&entry.log.mutex)
                    start = entry.log.log_start_offset
                    pthread_mutex_unlock(&entry.log.mutex)
                    share_move_start(self.state, entry, start)
                entry_unref(entry)
        return not self.unswept.empty()

    # ---- changes from outside ----

    def configure(self, str group, tuple settings):
        """Changes a group's settings: (lock ms, max records in flight, delivery limit, dead letters, read committed,
        renewals)."""
        cdef ShareSettings wanted = settings_of(settings)
        cdef vector[int64_t] ids
        cdef ShareEntry* entry
        cdef bint more
        cdef size_t i
        self.ids_of(group, &ids)
        with nogil:
            for i in range(ids.size()):
                entry = entry_of_id(self.state, ids[i])
                if entry == NULL:
                    continue
                more = False
                pthread_mutex_lock(&entry.mutex)
                if entry.status == ENTRY_READY:
                    more = entry.settings.read_committed != wanted.read_committed
                    entry.settings = wanted
                    more |= share_configure(entry.share, &wanted.limits)
                pthread_mutex_unlock(&entry.mutex)
                if more:
                    share_changed(self.state, entry)
                entry_unref(entry)

    def drop_group(self, str group, int16_t error, bint only_unused=False):
        """Closes the share partitions of a group. only_unused: not when a member has a session here. Returns whether
        they are closed."""
        cdef vector[int64_t] ids
        cdef string name = group.encode()
        cdef bint used
        self.ids_of(group, &ids)
        with nogil:
            pthread_mutex_lock(&self.state.sessions.mutex)
            used = only_unused and self.state.sessions.members.count(name) > 0
            pthread_mutex_unlock(&self.state.sessions.mutex)
            if not used:
                close_entries(self.state, &ids, error)
        return not used

    def drop_partition(self, str group, bytes topic_id, int32_t partition, int16_t error):
        """Closes one share partition; no effect when it is not here."""
        cdef string name = group.encode()
        cdef ShareEntry* entry
        cdef const uint8_t* id = topic_id
        if len(topic_id) != TOPIC_ID_SIZE:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        with nogil:
            entry = share_entry_find(self.state, name, id, partition)
            if entry != NULL:
                share_entry_close(self.state, entry, error)
                entry_unref(entry)

    def dead_lettered(self, str group, bytes topic_id, int32_t partition, int64_t first, int64_t last):
        """Archives the records of these offsets that wait for their dead letters."""
        cdef string name = group.encode()
        cdef ShareEntry* entry
        cdef SharePartitionState* share
        cdef const uint8_t* id = topic_id
        cdef int16_t error
        if len(topic_id) != TOPIC_ID_SIZE:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        with nogil:
            entry = share_entry_find(self.state, name, id, partition)
            if entry != NULL:
                share = share_entry_state(entry, NULL, &error)
                if share != NULL:
                    if share_dead_lettered(share, first, last):
                        share_changed(self.state, entry)
                    share_dirty(self.state, entry)
                entry_unref(entry)

    def archiving(self, str group, bytes topic_id, int32_t partition):
        """[(first, last, delivery count), ...] of the records that wait for their dead letters."""
        cdef string name = group.encode()
        cdef vector[AcquiredRange] found
        cdef ShareEntry* entry
        cdef SharePartitionState* share
        cdef const uint8_t* id = topic_id
        cdef int16_t error
        cdef size_t i
        if len(topic_id) != TOPIC_ID_SIZE:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        with nogil:
            entry = share_entry_find(self.state, name, id, partition)
            if entry != NULL:
                share = share_entry_state(entry, NULL, &error)
                if share != NULL:
                    share_archiving(share, &found)
                entry_unref(entry)
        return [(found[i].first, found[i].last, found[i].delivery_count) for i in range(found.size())]

    def has_writes(self, str group):
        """Whether a write of one of the group's share partitions is wanted or under way."""
        cdef vector[int64_t] ids
        cdef ShareEntry* entry
        cdef bint busy = False
        cdef size_t i
        self.ids_of(group, &ids)
        with nogil:
            for i in range(ids.size()):
                entry = entry_of_id(self.state, ids[i])
                if entry != NULL:
                    pthread_mutex_lock(&entry.mutex)
                    busy = entry.dirty or entry.writing
                    pthread_mutex_unlock(&entry.mutex)
                    entry_unref(entry)
                    if busy:
                        break
        return busy

    cdef int ids_of(self, str group, vector[int64_t]* ids) except -1:
        cdef string name = group.encode()
        cdef unordered_map[string, EntryIds, SeededHash].iterator found
        cdef ordered_set[int64_t].iterator at
        with nogil:
            pthread_mutex_lock(&self.state.mutex)
            found = self.state.by_group.find(name)
            if found != self.state.by_group.end():
                at = dereference(found).second.begin()
                while at != dereference(found).second.end():
                    ids.push_back(dereference(at))
                    preincrement(at)
            pthread_mutex_unlock(&self.state.mutex)
        return 0

    # ---- to look at ----

    def describe(self, str group, bytes topic_id, int32_t partition):
        """The state of one share partition as a dict, or None; {"loading": True} before it has one."""
        cdef string name = group.encode()
        cdef const uint8_t* id = topic_id
        cdef ShareEntry* entry
        cdef SharePartitionState* share
        cdef ShareDescription found
        cdef int16_t error
        if len(topic_id) != TOPIC_ID_SIZE:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        with nogil:
            entry = share_entry_find(self.state, name, id, partition)
            if entry != NULL:
                share = share_entry_state(entry, NULL, &error)
                if share != NULL:
                    share_describe(share, &found)
                entry_unref(entry)
        if entry == NULL:
            return None
        if share == NULL:
            return {"loading": True}
        return {
            "start_offset": found.start_offset,
            "next_offset": found.next_offset,
            "delivery_complete": found.delivery_complete,
            "records": found.records,
            "batches": found.batches,
            "acquired": found.acquired,
            "members": found.members,
            "memory": found.memory,
        }

    def counters(self):
        """Counts for the metrics."""
        cdef ShareCounters* c = &self.state.counters
        cdef int64_t sessions
        cdef int64_t partitions
        cdef int64_t evictions
        with nogil:
            pthread_mutex_lock(&self.state.sessions.mutex)
            sessions = <int64_t>self.state.sessions.sessions.size()
            partitions = self.state.sessions.partitions
            evictions = self.state.sessions.evictions
            pthread_mutex_unlock(&self.state.sessions.mutex)
        return {
            "sessions": sessions,
            "session_partitions": partitions,
            "evictions": evictions,
            "share_partitions": len(self),
            "acknowledgements": atomic_load(&c.acknowledgements),
            "acknowledged": [atomic_load(&c.acknowledged[i]) for i in range(5)],
            "acquired": atomic_load(&c.acquired),
            "loads": atomic_load(&c.loads),
            "load_failures": atomic_load(&c.load_failures),
            "writes": atomic_load(&c.writes),
            "write_failures": atomic_load(&c.write_failures),
            "leased_writes": atomic_load(&c.leased_writes),
            "leased_ms": atomic_load(&c.leased_ns) / 1e6,
            "expired": atomic_load(&c.expired),
        }
