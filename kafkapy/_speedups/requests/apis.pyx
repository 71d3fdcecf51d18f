"""The table of the APIs that the data plane serves (see apis.pxd).

A new API is a line here: {handle, resume, cancel, work, settle, waits for records, may be Python's}.
"""

from kafkapy._speedups.base.send cimport send_free
from kafkapy._speedups.records.compression cimport compression_thread_begin
from kafkapy._speedups.requests.data_plane cimport (
    API_FETCH,
    API_KEY_LIMIT,
    API_OFFSET_COMMIT,
    API_PRODUCE,
    API_SHARE_ACKNOWLEDGE,
    API_SHARE_FETCH,
)
from kafkapy._speedups.requests.fetch.handle cimport fetch_cancel, fetch_forget_kept, fetch_handle, fetch_resume
from kafkapy._speedups.requests.offset_commit.handle cimport commit_cancel, commit_handle, commit_resume, commit_settle
from kafkapy._speedups.requests.produce.group cimport produce_settle
from kafkapy._speedups.requests.produce.handle cimport produce_cancel, produce_handle, produce_resume, produce_work
from kafkapy._speedups.requests.share.handle cimport share_cancel, share_handle, share_resume

cdef DataPlaneApi apis[API_KEY_LIMIT]
apis[<int>API_PRODUCE] = DataPlaneApi(produce_handle, produce_resume, produce_cancel, produce_work, produce_settle,
                                      False, False)
apis[<int>API_FETCH] = DataPlaneApi(fetch_handle, fetch_resume, fetch_cancel, NULL, NULL, True, False)
apis[<int>API_OFFSET_COMMIT] = DataPlaneApi(commit_handle, commit_resume, commit_cancel, NULL, commit_settle,
                                            False, True)
apis[<int>API_SHARE_FETCH] = DataPlaneApi(share_handle, share_resume, share_cancel, NULL, NULL, True, False)
apis[<int>API_SHARE_ACKNOWLEDGE] = DataPlaneApi(share_handle, share_resume, share_cancel, NULL, NULL, False, False)


cdef const DataPlaneApi* data_plane_api(int16_t api_key) noexcept nogil:
    if api_key < 0 or api_key >= API_KEY_LIMIT or apis[api_key].handle == NULL:
        return NULL
    return &apis[api_key]


cdef void data_plane_thread_begin() noexcept nogil:
    compression_thread_begin()


cdef void data_plane_forget(LeftMemory* left) noexcept nogil:
    fetch_forget_kept(left.fetch)
    left.fetch = NULL
    send_free(left.send)
    left.send = NULL
