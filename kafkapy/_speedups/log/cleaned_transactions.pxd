"""What the cleaner knows of transactions while it walks a log in offset order (kafka.log.CleanedTransactionMetadata).

Batches of an aborted transaction are dropped. Its marker stays as long as the walk still met data of that transaction,
and so does its entry in the transaction index: a read_committed reader needs both or neither. An index entry whose
marker is gone would make readers drop later, committed data of that producer.
"""

from libc.stdint cimport int64_t
from libcpp.unordered_map cimport unordered_map
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.log.producer_state cimport CompletedTransaction, ControlMarker
from kafkapy._speedups.records.record_batch cimport BatchHeader

cdef struct AbortedProducer:
    CompletedTransaction transaction
    bint observed                   # data of it was met

cdef cppclass CleanedTransactions:
    vector[CompletedTransaction] aborted            # by first offset; begun ones are behind `next`
    size_t next
    unordered_map[int64_t, AbortedProducer] ongoing_aborted
    unordered_set[int64_t] ongoing_committed
    vector[CompletedTransaction] retained           # whose index entries stay, by last offset

# Starts a walk at `start`: transactions whose marker stands below are over.
cdef void transactions_start(CleanedTransactions* t, const vector[CompletedTransaction]* aborted,
                             int64_t start) noexcept nogil
# A data batch; true when it belongs to an aborted transaction.
cdef bint transactions_on_batch(CleanedTransactions* t, const BatchHeader* header) noexcept nogil
# A control batch; true when the walk met no data of its transaction, so that nobody needs the marker any more.
cdef bint transactions_on_control(CleanedTransactions* t, const BatchHeader* header,
                                  const ControlMarker* marker) noexcept nogil
