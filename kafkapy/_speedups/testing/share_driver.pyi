from kafkapy._speedups.share.handle import SharePartition

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
