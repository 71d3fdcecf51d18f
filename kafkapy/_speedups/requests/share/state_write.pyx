"""One write of a share-partition's state, for Python (see state_write.pxd)."""

cimport cython
from libc.stdint cimport int16_t, int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.error_codes cimport ERROR_UNKNOWN_SERVER_ERROR
from kafkapy._speedups.base.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.log.append cimport append_room_at_once
from kafkapy._speedups.log.partition_log cimport PartitionLog
from kafkapy._speedups.requests.share.entries cimport ENTRY_READY, entry_unref, share_dirty, share_entry_close
from kafkapy._speedups.requests.share.lease cimport LeaseState, StateLease, lease_ref, lease_unref
from kafkapy._speedups.requests.share.writes cimport share_write_end
from kafkapy._speedups.share.layout cimport StateChange

cdef enum:
    TOPIC_ID_SIZE = 16


@cython.no_gc_clear
cdef class StateWrite:
    """One write for the share coordinator, from ShareTable.take; finish it once."""

    def __init__(self, *args, **kwargs):
        raise TypeError("writes come from ShareTable.take()")

    def __dealloc__(self):
        if self.entry != NULL:
            if not self.finished:
                self.end(<int16_t>ERROR_UNKNOWN_SERVER_ERROR, False)
            with nogil:
                entry_unref(self.entry)
            del self.content

    @property
    def key(self):
        """(group, topic id as bytes, partition)."""
        return ((<bytes>self.entry.group).decode("utf-8", "replace"),
                (<const char*>self.entry.topic_id)[:TOPIC_ID_SIZE], self.entry.partition)

    @property
    def topic(self):
        """The name of its topic."""
        return (<bytes>self.entry.log.topic).decode()

    @property
    def state_epoch(self):
        return self.content.state_epoch

    @property
    def leader_epoch(self):
        return self.content.leader_epoch

    @property
    def start_offset(self):
        return self.content.start_offset

    @property
    def delivery_complete(self):
        """The records behind the start offset that are delivered no more."""
        return self.content.delivery_complete

    cdef list changes(self, bint held):
        cdef vector[StateChange]* all = &self.content.changes
        cdef size_t i
        return [(all[0][i].first, all[0][i].last, all[0][i].state, all[0][i].delivery_count)
                for i in range(all.size()) if not (held and all[0][i].pending)]

    @property
    def batches(self):
        """[(first, last, state, delivery count), ...] in the order of offsets."""
        return self.changes(False)

    @property
    def held(self):
        """Those of `batches` that hold although the write fails: time-outs of locks."""
        return self.changes(True)

    def finish(self, int16_t error=0, bint close=False):
        """Ends the write with an error for the acknowledgements in it, 0: it is stored. close: nobody goes on with this
        share partition here, because another broker or epoch has it."""
        if self.finished:
            raise RuntimeError("this write is finished")
        self.end(error, close)

    cdef int end(self, int16_t error, bint close) except -1:
        cdef bint again
        self.finished = True
        with nogil:
            again = share_write_end(self.table, self.entry, self.content, error, close)
            if close:
                share_entry_close(self.table, self.entry, error)
            elif again:
                share_dirty(self.table, self.entry)
        return 0

    def lend(self, PartitionLog log not None, int log_epoch, bytes key not None, int snapshot_epoch, int state_epoch,
             int leader_epoch, int64_t start_offset, int delivery_complete, int updates):
        """Gives the share-partition of a finished write a lease for the next ones: a StateLease, whose arguments these
        are. None: the log does not commit appends at once, or the share-partition has another write or is closed."""
        cdef LeaseState* before = NULL
        cdef ShareEntry* entry = self.entry
        cdef StateLease lease
        cdef bint lent
        if not self.finished:
            raise RuntimeError("this write is not finished")
        with nogil:
            lent = append_room_at_once(log.state) > 0
        if not lent:
            return None
        lease = StateLease(log, log_epoch, key, snapshot_epoch, state_epoch, leader_epoch, start_offset,
                           delivery_complete, updates)
        with nogil:
            pthread_mutex_lock(&entry.mutex)
            lent = entry.status == ENTRY_READY and not entry.dirty and not entry.writing
            if lent:
                before = entry.lease
                entry.lease = lease_ref(lease.state)
            pthread_mutex_unlock(&entry.mutex)
            lease_unref(before)
        return lease if lent else None


cdef StateWrite state_write(object owner, ShareTableState* table, ShareEntry* entry, ShareWrite* content):
    cdef StateWrite write = StateWrite.__new__(StateWrite)
    write.owner = owner
    write.table = table
    write.entry = entry
    write.content = content
    return write
