"""The transactions that the cleaner meets while it walks a log in offset order (kafka.log.CleanedTransactionMetadata).

The cleaner drops the batches of an aborted transaction. It keeps the marker, and the entry in the transaction index, as
long as the walk still meets data of that transaction: a read_committed reader needs both or neither. An index entry
without its marker would make readers drop later, committed data of that producer.
"""

from libc.stdint cimport int64_t
from libcpp.unordered_map cimport unordered_map
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from kafkapy._speedups.log.producer_state cimport CompletedTransaction, ControlMarker
from kafkapy._speedups.records.record_batch cimport BatchHeader

cdef struct AbortedProducer:
    CompletedTransaction transaction
    bint observed                   # the walk met data of it

cdef cppclass CleanedTransactions:
    vector[CompletedTransaction] aborted            # by first offset; begun ones are behind `next`
    size_t next
    unordered_map[int64_t, AbortedProducer] ongoing_aborted
    unordered_set[int64_t] ongoing_committed
    vector[CompletedTransaction] retained           # transactions with lasting index entries, by last offset

# Starts a walk at `start`: transactions with a marker below it have ended.
cdef void transactions_start(CleanedTransactions* t, const vector[CompletedTransaction]* aborted,
                             int64_t start) noexcept nogil
# Meets a data batch; true when it belongs to an aborted transaction.
cdef bint transactions_on_batch(CleanedTransactions* t, const BatchHeader* header) noexcept nogil
# Meets a control batch; true when the walk met no data of its transaction, so that no reader needs the marker.
cdef bint transactions_on_control(CleanedTransactions* t, const BatchHeader* header,
                                  const ControlMarker* marker) noexcept nogil
