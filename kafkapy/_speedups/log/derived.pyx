"""Producer snapshots and transaction indexes of a partition (see derived.pxd; formats: producer_state.pxd,
transaction_index.pyx).

Snapshots are written without a sync: a snapshot that a power failure spoils fails its CRC, and the log reads the
batches instead.
"""

from struct import Struct

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.base.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kafkapy._speedups.base.wire cimport ByteBuffer, buffer_free, buffer_init
from kafkapy._speedups.log.describe cimport describe_aborted, describe_segments
from kafkapy._speedups.log.layout cimport LogState
from kafkapy._speedups.log.private cimport ProducerSnapshot, private_of
from kafkapy._speedups.log.producer_state cimport producer_snapshot_write

ABORTED_ENTRY = Struct(">hqqqq")
NO_END = 0x7FFFFFFFFFFFFFFF


cdef object write_snapshot(LogState* log, object storage):
    cdef ByteBuffer buffer
    cdef int64_t offset
    cdef bint taken = False
    buffer_init(&buffer)
    with nogil:
        pthread_mutex_lock(&log.mutex)
        offset = log.log_end_offset
        if offset > private_of(log).history.producers.snapshot_offset:
            producer_snapshot_write(private_of(log).history.producers, &buffer)
            taken = not buffer.error
            if taken:
                private_of(log).history.producers.snapshot_offset = offset
        pthread_mutex_unlock(&log.mutex)
    try:
        if taken:
            storage.write_file(f"{offset:020d}.snapshot", PyBytes_FromStringAndSize(<char*>buffer.data, buffer.size),
                               sync=False)
    finally:
        buffer_free(&buffer)
    return offset if taken else None


cdef int write_snapshots_of_rolls(LogState* log, object storage) except -1:
    cdef vector[ProducerSnapshot] taken
    cdef size_t i
    with nogil:
        pthread_mutex_lock(&log.mutex)
        taken.swap(private_of(log).snapshots)
        pthread_mutex_unlock(&log.mutex)
    for i in range(taken.size()):
        storage.write_file(f"{taken[i].offset:020d}.snapshot", <bytes>taken[i].data, sync=False)
    return 0


cdef list usable_snapshots(object storage, int64_t end):
    found = []
    for name in storage.names():
        stem, _, suffix = name.partition(".")
        if suffix == "snapshot" and stem.isdigit():
            if int(stem) > end:
                storage.remove_file(name)
            else:
                data = storage.read_file(name)
                if data is not None:
                    found.append((int(stem), data))
    return found


cdef int write_transaction_indexes(LogState* log, object storage, int64_t first_base) except -1:
    bases = [segment[0] for segment in describe_segments(log) if segment[0] >= first_base]
    for number, base in enumerate(bases):
        aborted = describe_aborted(log, base, bases[number + 1] if number + 1 < len(bases) else NO_END)
        name = f"{base:020d}.txnindex"
        if aborted:
            storage.write_file(name, b"".join(ABORTED_ENTRY.pack(0, *entry) for entry in aborted))
        else:
            storage.remove_file(name)
    return 0
