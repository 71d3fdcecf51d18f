"""The rate over sampled windows (see sampled_rate.pxd)."""

cdef enum:
    MAX_THROTTLE_MS = 0x7FFFFFFF    # of the int32 in a response


cdef void rate_init(SampledRate* rate, int64_t windows, int64_t window_ms) noexcept nogil:
    rate.windows = windows
    rate.window_ms = window_ms
    rate.current = 0
    rate.samples.clear()


cdef void begin_sample(RateSample* sample, int64_t now_ms) noexcept nogil:
    sample.start_ms = now_ms
    sample.last_ms = now_ms
    sample.value = 0


cdef RateSample* sample_at(SampledRate* rate, size_t place, int64_t now_ms) noexcept nogil:
    """A new sample at a place in the ring of samples."""
    cdef RateSample fresh
    if place >= rate.samples.size():
        begin_sample(&fresh, now_ms)
        rate.samples.push_back(fresh)
    else:
        begin_sample(&rate.samples[place], now_ms)
    rate.current = place
    return &rate.samples[place]


cdef void rate_record(SampledRate* rate, double value, int64_t now_ms) noexcept nogil:
    cdef RateSample* sample
    if rate.samples.empty():
        sample = sample_at(rate, 0, now_ms)
    else:
        sample = &rate.samples[rate.current]
        if now_ms - sample.start_ms >= rate.window_ms:
            sample = sample_at(rate, (rate.current + 1) % <size_t>(rate.windows + 1), now_ms)
    sample.value += value
    sample.last_ms = now_ms


cdef double rate_sum(SampledRate* rate, int64_t now_ms, int64_t* elapsed_ms) noexcept nogil:
    cdef int64_t expire_ms = rate.windows * rate.window_ms
    cdef int64_t oldest_ms = now_ms
    cdef int64_t missing
    cdef double total = 0
    cdef size_t i
    for i in range(rate.samples.size()):
        if now_ms - rate.samples[i].last_ms >= expire_ms:
            begin_sample(&rate.samples[i], now_ms)
        total += rate.samples[i].value
        oldest_ms = min(oldest_ms, rate.samples[i].start_ms)
    elapsed_ms[0] = now_ms - oldest_ms
    missing = rate.windows - 1 - elapsed_ms[0] // rate.window_ms
    if missing > 0:
        elapsed_ms[0] += missing * rate.window_ms
    if elapsed_ms[0] < 1:
        elapsed_ms[0] = 1
    return total


cdef double rate_measure(SampledRate* rate, int64_t now_ms) noexcept nogil:
    cdef int64_t elapsed_ms
    cdef double total = rate_sum(rate, now_ms, &elapsed_ms)
    return total / (<double>elapsed_ms / 1000.0)


cdef int64_t rate_throttle_ms(SampledRate* rate, double bound, int64_t now_ms) noexcept nogil:
    cdef int64_t elapsed_ms
    cdef double total = rate_sum(rate, now_ms, &elapsed_ms)
    cdef double observed = total / (<double>elapsed_ms / 1000.0)
    cdef double wait
    if observed <= bound:
        return 0
    if bound <= 0:
        return MAX_THROTTLE_MS
    wait = (observed - bound) / bound * <double>elapsed_ms + 0.5
    return <int64_t>wait if wait < <double>MAX_THROTTLE_MS else MAX_THROTTLE_MS


cdef bint rate_is_over(SampledRate* rate, int64_t now_ms) noexcept nogil:
    cdef size_t i
    for i in range(rate.samples.size()):
        if now_ms - rate.samples[i].last_ms < rate.windows * rate.window_ms and rate.samples[i].value != 0:
            return False
    return True
