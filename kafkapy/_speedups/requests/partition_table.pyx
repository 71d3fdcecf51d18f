"""The partitions of this broker, by topic name and by topic id (see partition_table.pxd).

The control plane writes under the write lock with the GIL released; a Processor holds the read lock for one hash
look-up. A reader leaves with a reference to the LogState, never with a pointer into the table, so a topic may be
deleted at any moment.
"""

from cython.operator cimport dereference, preincrement
from libc.string cimport memcpy

from kafkapy._speedups.base.posix cimport (
    atomic_add,
    pthread_rwlock_destroy,
    pthread_rwlock_rdlock,
    pthread_rwlock_unlock,
    pthread_rwlock_wrlock,
    rwlock_init,
)
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.log.state cimport log_ref, log_unref

cdef enum:
    TOPIC_ID_SIZE = 16


cdef void entry_unref(TopicEntry* entry) noexcept nogil:
    cdef size_t i
    if entry != NULL and atomic_add(&entry.references, -1) == 0:
        for i in range(entry.partitions.size()):
            if entry.partitions[i] != NULL:
                log_unref(entry.partitions[i])
        del entry


cdef LookupStatus find_partition(TopicEntry* entry, int32_t partition, LogState** log) noexcept nogil:
    """Finds a partition, under the read lock."""
    if partition < 0 or partition >= entry.partition_count:
        return LOOKUP_UNKNOWN_PARTITION
    if <size_t>partition >= entry.partitions.size() or entry.partitions[partition] == NULL:
        return LOOKUP_NOT_HOSTED
    log[0] = entry.partitions[partition]
    log_ref(log[0])
    return LOOKUP_OK


cdef TopicEntry* find_topic(unordered_map[string, TopicPointer, SeededHash]* topics, const uint8_t* key,
                            Py_ssize_t size) noexcept nogil:
    """Finds a topic, under either lock; NULL when the table has none."""
    cdef string wanted
    if size > 0:
        wanted.assign(<const char*>key, size)
    cdef unordered_map[string, TopicPointer, SeededHash].iterator found = topics.find(wanted)
    if found == topics.end():
        return NULL
    return dereference(found).second


cdef LookupStatus partition_by_name(PartitionTableState* t, const uint8_t* name, Py_ssize_t size, int32_t partition,
                                    LogState** log) noexcept nogil:
    cdef LookupStatus status = LOOKUP_UNKNOWN_TOPIC
    pthread_rwlock_rdlock(&t.lock)
    cdef TopicEntry* entry = find_topic(&t.by_name, name, size)
    if entry != NULL:
        status = find_partition(entry, partition, log)
    pthread_rwlock_unlock(&t.lock)
    return status


cdef LookupStatus partition_by_id(PartitionTableState* t, const uint8_t* topic_id, int32_t partition,
                                  LogState** log) noexcept nogil:
    cdef LookupStatus status = LOOKUP_UNKNOWN_TOPIC
    pthread_rwlock_rdlock(&t.lock)
    cdef TopicEntry* entry = find_topic(&t.by_id, topic_id, TOPIC_ID_SIZE)
    if entry != NULL:
        status = find_partition(entry, partition, log)
    pthread_rwlock_unlock(&t.lock)
    return status


cdef bint topic_name_of(PartitionTableState* t, const uint8_t* topic_id, string* name) noexcept nogil:
    pthread_rwlock_rdlock(&t.lock)
    cdef TopicEntry* entry = find_topic(&t.by_id, topic_id, TOPIC_ID_SIZE)
    if entry != NULL:
        name[0] = entry.name
    else:
        name.clear()
    pthread_rwlock_unlock(&t.lock)
    return entry != NULL


cdef bint topic_id_of(PartitionTableState* t, const uint8_t* name, Py_ssize_t size, uint8_t* topic_id) noexcept nogil:
    pthread_rwlock_rdlock(&t.lock)
    cdef TopicEntry* entry = find_topic(&t.by_name, name, size)
    if entry != NULL:
        memcpy(topic_id, entry.topic_id, TOPIC_ID_SIZE)
    pthread_rwlock_unlock(&t.lock)
    return entry != NULL


cdef LeaderHint partition_leader(PartitionTableState* t, const uint8_t* name, Py_ssize_t size,
                                 int32_t partition) noexcept nogil:
    cdef LeaderHint hint
    hint.leader_id = -1
    hint.leader_epoch = -1
    pthread_rwlock_rdlock(&t.lock)
    cdef TopicEntry* entry = find_topic(&t.by_name, name, size)
    if entry != NULL and partition >= 0 and <size_t>partition < entry.leaders.size():
        hint = entry.leaders[partition]
    pthread_rwlock_unlock(&t.lock)
    return hint


cdef class PartitionTable:
    """Owns the table. The server creates it once; the control loop writes it, every Processor reads it without the
    GIL."""

    def __cinit__(self):
        self.logs = {}
        self.state = new PartitionTableState()
        rwlock_init(&self.state.lock)

    def __dealloc__(self):
        cdef unordered_map[string, TopicPointer, SeededHash].iterator it
        if self.state == NULL:
            return
        it = self.state.by_name.begin()
        while it != self.state.by_name.end():
            entry_unref(dereference(it).second)
            preincrement(it)
        pthread_rwlock_destroy(&self.state.lock)
        del self.state

    def put(self, str topic, bytes topic_id, int32_t partition_count):
        """Adds a topic or changes its partition count; a known name with another id is a new topic, and loses its logs.

        `topic_id` is 16 raw bytes; all zero: the topic has no id. ValueError for another size or a negative count.
        """
        if len(topic_id) != TOPIC_ID_SIZE:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        if partition_count < 0:
            raise ValueError(f"a topic cannot have {partition_count} partitions")
        cdef string name = topic.encode()
        cdef string id_key = topic_id
        cdef bint has_id = any(topic_id)
        cdef TopicEntry* entry
        cdef TopicEntry* replaced = NULL
        with nogil:
            pthread_rwlock_wrlock(&self.state.lock)
            entry = find_topic(&self.state.by_name, <const uint8_t*>name.data(), name.size())
            if entry != NULL and id_key.compare(0, TOPIC_ID_SIZE, <const char*>entry.topic_id, TOPIC_ID_SIZE) != 0:
                replaced = entry
                self.unlink(entry)
                entry = NULL
            if entry == NULL:
                entry = new TopicEntry()
                entry.references = 1
                entry.name = name
                memcpy(entry.topic_id, id_key.data(), TOPIC_ID_SIZE)
                entry.partition_count = 0
                entry.deleted = False
                self.state.by_name[name] = entry
                if has_id:
                    self.state.by_id[id_key] = entry
            entry.partition_count = partition_count
            pthread_rwlock_unlock(&self.state.lock)
        if replaced != NULL:
            self.forget_logs(topic)
            with nogil:
                entry_unref(replaced)

    def set_log(self, str topic, int32_t partition, PartitionLog log not None):
        """Hosts a partition here. KeyError for a topic without `put`, ValueError for a partition number out of
        range."""
        cdef string name = topic.encode()
        cdef TopicEntry* entry
        cdef LogState* previous = NULL
        cdef LogState* state = log.state
        cdef int status = 0
        with nogil:
            pthread_rwlock_wrlock(&self.state.lock)
            entry = find_topic(&self.state.by_name, <const uint8_t*>name.data(), name.size())
            if entry == NULL:
                status = 1
            elif partition < 0 or partition >= entry.partition_count:
                status = 2
            else:
                while entry.partitions.size() <= <size_t>partition:
                    entry.partitions.push_back(NULL)
                previous = entry.partitions[partition]
                log_ref(state)
                entry.partitions[partition] = state
            pthread_rwlock_unlock(&self.state.lock)
            if previous != NULL:
                log_unref(previous)
        if status == 1:
            raise KeyError(topic)
        if status == 2:
            raise ValueError(f"topic {topic} has no partition {partition}")
        self.logs[topic, partition] = log

    def remove_log(self, str topic, int32_t partition):
        """Ends the hosting of a partition here (fetch and produce answer NOT_LEADER_OR_FOLLOWER). No effect on a
        partition that is not hosted."""
        cdef string name = topic.encode()
        cdef TopicEntry* entry
        cdef LogState* previous = NULL
        with nogil:
            pthread_rwlock_wrlock(&self.state.lock)
            entry = find_topic(&self.state.by_name, <const uint8_t*>name.data(), name.size())
            if entry != NULL and partition >= 0 and <size_t>partition < entry.partitions.size():
                previous = entry.partitions[partition]
                entry.partitions[partition] = NULL
            pthread_rwlock_unlock(&self.state.lock)
            if previous != NULL:
                log_unref(previous)
        self.logs.pop((topic, partition), None)

    def remove_topic(self, str topic):
        """Forgets a topic with its logs. No effect on an unknown topic."""
        cdef string name = topic.encode()
        cdef TopicEntry* entry
        with nogil:
            pthread_rwlock_wrlock(&self.state.lock)
            entry = find_topic(&self.state.by_name, <const uint8_t*>name.data(), name.size())
            if entry != NULL:
                self.unlink(entry)
            pthread_rwlock_unlock(&self.state.lock)
            entry_unref(entry)
        self.forget_logs(topic)

    def set_leader(self, str topic, int32_t partition, int32_t leader_id, int32_t leader_epoch):
        """Sets the leader of a partition that is not hosted here; Produce v10+ and Fetch v16+ tell it to clients
        (KIP-951)."""
        cdef string name = topic.encode()
        cdef TopicEntry* entry
        cdef LeaderHint hint
        with nogil:
            pthread_rwlock_wrlock(&self.state.lock)
            entry = find_topic(&self.state.by_name, <const uint8_t*>name.data(), name.size())
            if entry != NULL and 0 <= partition < entry.partition_count:
                hint.leader_id = -1
                hint.leader_epoch = -1
                while entry.leaders.size() <= <size_t>partition:
                    entry.leaders.push_back(hint)
                entry.leaders[partition].leader_id = leader_id
                entry.leaders[partition].leader_epoch = leader_epoch
            pthread_rwlock_unlock(&self.state.lock)
        if entry == NULL:
            raise KeyError(topic)

    def log(self, str topic, int32_t partition):
        """The PartitionLog hosted here, or None."""
        return self.logs.get((topic, partition))

    def hosted(self):
        """(topic, partition) of every partition hosted here, sorted."""
        return sorted(self.logs)

    def topics(self):
        """(name, topic id, partition count) of every known topic, sorted by name."""
        cdef unordered_map[string, TopicPointer, SeededHash].iterator it
        cdef TopicEntry* entry
        cdef vector[string] names
        cdef vector[string] ids
        cdef vector[int32_t] counts
        cdef string topic_id
        with nogil:
            pthread_rwlock_rdlock(&self.state.lock)
            it = self.state.by_name.begin()
            while it != self.state.by_name.end():
                entry = dereference(it).second
                names.push_back(entry.name)
                topic_id.assign(<const char*>entry.topic_id, TOPIC_ID_SIZE)
                ids.push_back(topic_id)
                counts.push_back(entry.partition_count)
                preincrement(it)
            pthread_rwlock_unlock(&self.state.lock)
        cdef size_t i
        cdef bytes name
        cdef bytes raw_id
        out = []
        for i in range(names.size()):
            name = names[i]
            raw_id = ids[i]
            out.append((name.decode(), raw_id, counts[i]))
        return sorted(out)

    cdef void unlink(self, TopicEntry* entry) noexcept nogil:
        """Unlinks a topic, under the write lock; the caller gets the table's reference."""
        cdef string id_key
        id_key.assign(<const char*>entry.topic_id, TOPIC_ID_SIZE)
        entry.deleted = True
        if find_topic(&self.state.by_id, entry.topic_id, TOPIC_ID_SIZE) == entry:
            self.state.by_id.erase(id_key)
        self.state.by_name.erase(entry.name)

    cdef int forget_logs(self, str topic) except -1:
        for key in [key for key in self.logs if key[0] == topic]:
            del self.logs[key]
        return 0
