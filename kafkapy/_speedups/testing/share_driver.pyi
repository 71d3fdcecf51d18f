from kafkapy._speedups.testing.share_partition import SharePartition

def drive(
    share: SharePartition,
    members: list[bytes],
    *,
    rounds: int,
    width: int,
    count: int,
    number: int = ...,
    per_offset: bool = ...,
    mixed: bool = ...,
) -> dict[str, int]: ...
