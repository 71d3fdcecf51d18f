"""The checks of an append that need neither the log's mutex nor its state: structure, sizes, CRC, records.

The records of a compressed batch are checked too (kafkapy.validate.compressed=full). AppendOptions.work bounds the cost
for the calling thread; a batch over the bound needs a worker (CHECK_BY_WORKER), which calls `check_by_worker`. Source:
Kafka's UnifiedLog and LogValidator.
"""

from libc.stdint cimport int64_t, uint8_t
from libcpp.vector cimport vector

from kafkapy._speedups.log.layout cimport AppendOptions, AppendResult, LogConfigState
from kafkapy._speedups.log.producer_state cimport ControlMarker
from kafkapy._speedups.records.record_batch cimport BatchHeader, ValidationRules

cdef enum CheckVerdict:             # beside 0 and Kafka's error codes
    CHECK_BY_PYTHON = -1            # Python must convert or recompress the batch
    CHECK_BY_WORKER = -2            # the worker needs result.rules

cdef enum:
    BATCHES_SINCE_VERSION = 3       # of Produce: older versions carry message sets of v0 and v1 (KIP-98)

# Bytes of lz4 that one request may decompress on its network thread; other codecs count for more. One to two
# milliseconds.
cdef enum:
    INLINE_WORK = 4 << 20

cdef struct CheckedBatch:
    int64_t at                      # position in the given bytes
    BatchHeader header
    ControlMarker marker

# Sets error and message of the result, and returns the error.
cdef int refuse(AppendResult* result, int error, const char* message) noexcept nogil
# 0, a CheckVerdict or a Kafka error, which the result holds too. May patch the max timestamp, and the append time
# with LogAppendTime.
cdef int check_all(uint8_t* data, int64_t size, const LogConfigState* config, const AppendOptions* options, int origin,
                   vector[CheckedBatch]* batches, AppendResult* result) noexcept nogil
# Checks the records of the compressed batch of a CHECK_BY_WORKER, whose CRC is right. 0 or an error. May patch the max
# timestamp.
cdef int check_by_worker(uint8_t* data, int64_t size, const ValidationRules* rules, AppendResult* result) noexcept nogil
