"""Acquisition of records that a ShareFetch has read: first those of the window that are available, then new ones.

What is delivered how, as in Kafka's SharePartition:

    whole log batches       max_records and the bound of the window are passed by the rest of a log batch, unless the
                            request limits records (AcquireMode). New ranges are cut at log batches, `batch_size`
                            records or more each.
    suspicious records      a batch that was delivered half as often as its limit allows, and at least twice, comes
                            alone and in halves, quarters and so on, at the last delivery record by record: so that one
                            record that kills its consumer does not take its neighbours with it (KIP-1217)
    records that are gone   available records between the offset where the log was read and the first batch found there
                            were compacted away: they are archived

Unlike Kafka, contiguous records of a mixed batch come as one range, and available records of a full window are not
counted against its bound a second time.
"""

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kafkapy._speedups.share.layout cimport AcquiredRange, AcquireRequest, LogBatch
from kafkapy._speedups.share.window cimport Window

# Appends the acquired ranges; returns the number of records in them.
cdef int64_t window_acquire(Window* window, const AcquireRequest* request, const LogBatch* batches, size_t count,
                            vector[AcquiredRange]* out) noexcept nogil
