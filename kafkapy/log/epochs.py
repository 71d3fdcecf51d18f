"""The leader-epoch-checkpoint file of a partition (KIP-101): which leader epoch began at which offset.

0           version
2           number of entries
0 0         epoch, start offset; ascending
3 1200
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["LEADER_EPOCH_FILE", "format_leader_epochs", "parse_leader_epochs"]

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
VERSION = 0


def format_leader_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """The file's content for (epoch, start offset) pairs."""
    entries = list(epochs)
    lines = [str(VERSION), str(len(entries)), *(f"{epoch} {offset}" for epoch, offset in entries)]
    return ("\n".join(lines) + "\n").encode()


def parse_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """The (epoch, start offset) pairs of the file.

    ValueError when it is malformed: then it is rebuilt from the log.
    """
    lines = data.decode("ascii").splitlines()
    if len(lines) < 2 or int(lines[0]) != VERSION:
        raise ValueError("no leader epoch file of a known version")
    entries = []
    for line in lines[2:]:
        if line:
            epoch, offset = line.split(" ")
            entries.append((int(epoch), int(offset)))
    ascending = all(
        low[0] < high[0] and low[1] <= high[1] for low, high in zip([(-1, 0), *entries], entries, strict=False)
    )
    if len(entries) != int(lines[1]) or not ascending:
        raise ValueError("the leader epochs do not add up")
    return entries
