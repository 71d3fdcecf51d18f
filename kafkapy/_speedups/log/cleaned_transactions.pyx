"""Transactions along the cleaner's walk (see cleaned_transactions.pxd). One thread, no locks."""

from cython.operator cimport dereference as deref
from libc.stdint cimport int64_t
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kafkapy._speedups.log.producer_state cimport CONTROL_ABORT, CONTROL_COMMIT, CompletedTransaction, ControlMarker
from kafkapy._speedups.records.record_batch cimport TRANSACTIONAL_FLAG, BatchHeader

cdef extern from "<algorithm>" namespace "std" nogil:
    void sort_by "std::sort"(CompletedTransaction*, CompletedTransaction*,
                             bint (*)(const CompletedTransaction&, const CompletedTransaction&) noexcept nogil)


cdef bint begins_first(const CompletedTransaction& a, const CompletedTransaction& b) noexcept nogil:
    return a.first_offset < b.first_offset


cdef void transactions_start(CleanedTransactions* t, const vector[CompletedTransaction]* aborted,
                             int64_t start) noexcept nogil:
    cdef size_t i
    t.aborted.clear()
    t.next = 0
    t.ongoing_aborted.clear()
    t.ongoing_committed.clear()
    t.retained.clear()
    for i in range(aborted.size()):
        if aborted[0][i].last_offset >= start:
            t.aborted.push_back(aborted[0][i])
    if t.aborted.size() > 1:
        sort_by(&t.aborted[0], &t.aborted[0] + t.aborted.size(), begins_first)


cdef void begin_up_to(CleanedTransactions* t, int64_t offset) noexcept nogil:
    """Opens the aborted transactions that begin at or below `offset`."""
    cdef AbortedProducer producer
    cdef int64_t producer_id
    while t.next < t.aborted.size() and t.aborted[t.next].first_offset <= offset:
        producer_id = t.aborted[t.next].producer_id
        if t.ongoing_aborted.find(producer_id) == t.ongoing_aborted.end():
            producer.transaction = t.aborted[t.next]
            producer.observed = False
            t.ongoing_aborted[producer_id] = producer
        t.ongoing_committed.erase(producer_id)
        t.next += 1


cdef bint transactions_on_batch(CleanedTransactions* t, const BatchHeader* header) noexcept nogil:
    cdef unordered_map[int64_t, AbortedProducer].iterator found
    begin_up_to(t, header.base_offset + header.last_offset_delta)
    if not header.attributes & TRANSACTIONAL_FLAG:
        return False
    found = t.ongoing_aborted.find(header.producer_id)
    if found != t.ongoing_aborted.end():
        deref(found).second.observed = True
        return True
    t.ongoing_committed.insert(header.producer_id)
    return False


cdef bint transactions_on_control(CleanedTransactions* t, const BatchHeader* header,
                                  const ControlMarker* marker) noexcept nogil:
    cdef unordered_map[int64_t, AbortedProducer].iterator found
    cdef bint observed
    begin_up_to(t, header.base_offset + header.last_offset_delta)
    if header.record_count == 0:
        return True                 # cleaned before; it was kept for its producer's epoch only
    if marker.type == CONTROL_ABORT:
        found = t.ongoing_aborted.find(header.producer_id)
        if found == t.ongoing_aborted.end():
            return True
        observed = deref(found).second.observed
        if observed:
            t.retained.push_back(deref(found).second.transaction)
        t.ongoing_aborted.erase(found)
        return not observed
    if marker.type == CONTROL_COMMIT:
        return t.ongoing_committed.erase(header.producer_id) == 0
    return False                    # a control record of an unknown kind stays
