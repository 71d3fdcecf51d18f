"""The checks of an append that need neither the log's mutex nor its state: structure, sizes, CRC, records. Source:
Kafka's UnifiedLog and LogValidator.

The records of a compressed batch are looked at too (kafkapy.validate.compressed=full). What that may cost the calling
thread is bounded by AppendOptions.work; a batch over it is left to a worker (CHECK_BY_WORKER), who calls
`check_by_worker`.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport AppendOptions, AppendResult, LogConfigState
from kafkapy._speedups.log.producer_state cimport ControlMarker
from kafkapy._speedups.records.record_batch cimport BatchHeader, ValidationRules

cdef enum CheckVerdict:             # beside 0 and Kafka's error codes
    CHECK_BY_PYTHON = -1            # to be converted or compressed with another codec
    CHECK_BY_WORKER = -2            # result.rules are what it needs

cdef enum:
    BATCHES_SINCE_VERSION = 3       # of Produce: before, message sets of v0 and v1 come in (KIP-98)

# What one request may have its network thread decompress, in bytes of lz4; other codecs count for more. One to two
# milliseconds.
cdef enum:
    INLINE_WORK = 4 << 20

cdef struct CheckedBatch:
    int64_t at                      # in the bytes given
    BatchHeader header
    ControlMarker marker

# Fills the reason in, and returns the error.
cdef int refuse(AppendResult* result, int error, const char* message) noexcept nogil
# 0, a CheckVerdict or an error of Kafka's, which is in the result too. May patch the max timestamp, and the append time
# with LogAppendTime.
cdef int check_all(uint8_t* data, int64_t size, const LogConfigState* config, const AppendOptions* options, int origin,
                   vector[CheckedBatch]* batches, AppendResult* result) noexcept nogil
# The records of the one compressed batch that CHECK_BY_WORKER was about, the CRC of which is right. 0 or an error. May
# patch the max timestamp.
cdef int check_by_worker(uint8_t* data, int64_t size, const ValidationRules* rules, AppendResult* result) noexcept nogil
