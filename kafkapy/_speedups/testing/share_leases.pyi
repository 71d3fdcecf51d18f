from collections.abc import Iterable

from kafkapy._speedups.requests.share.lease import StateLease

def begin(lease: StateLease) -> bool: ...
def store(
    lease: StateLease,
    start_offset: int,
    delivery_complete: int,
    changes: Iterable[tuple[int, int, int, int]],
    state_epoch: int = ...,
) -> bool: ...
