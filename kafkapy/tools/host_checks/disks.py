"""Log directories: file system, owner, space, inodes, speed of a sync, identity."""

from __future__ import annotations

import os
import re
import stat
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kafkapy.broker import meta_properties
from kafkapy.broker.identity import configured_id
from kafkapy.errors import KafkaError
from kafkapy.log.log_dir import LOCK_FILE, LogDir, LogDirError
from kafkapy.tools.host_checks.finding import Finding, Host, Subject, problem, satisfied, unknown, warning
from kafkapy.tools.output import size_text

__all__ = ["check", "is_running"]

IN_MEMORY: Final = frozenset(("tmpfs", "ramfs"))
LAYERS: Final = frozenset(("overlay", "aufs"))
OVER_A_NETWORK: Final = re.compile(r"nfs\d*|cifs|smb\d*|9p|virtiofs|ceph|glusterfs|fuse(?!blk)(\..*)?|vboxsf|davfs")
FREE_SHARE: Final = 0.1
LEAST_FREE: Final = 256 << 20
"""Bytes of free space without which a broker soon stops writing."""
LEAST_INODES: Final = 10_000
SYNCS: Final = 5
SYNC_BYTES: Final = 4096
SLOW_SYNC_MS: Final = 20.0
PRIVATE: Final = stat.S_IWOTH
ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system: its place, its type, its options."""

    place: str
    kind: str
    options: tuple[str, ...]


def check(subject: Subject) -> Iterator[Finding]:
    """The findings of each log directory, and of all together."""
    config, host = subject.config, subject.host
    if config.keeps_nothing:
        yield satisfied("log directories", "none: the broker keeps its records in memory")
        return
    directories = dict.fromkeys(Path(each).absolute() for each in (*config.log_dirs, config.metadata_log_dir))
    for directory in directories:
        yield from _directory(directory, host, config.get_int("log.segment.bytes"))
    yield from _shared_volumes(list(directories))
    yield from _identity(subject, [str(each) for each in directories if each.is_dir()])


def is_running(subject: Subject) -> bool:
    """Whether a broker has locked a log directory of the configuration."""
    return any(_is_locked(Path(each)) for each in subject.config.log_dirs)


def _is_locked(directory: Path) -> bool:
    if not (directory / LOCK_FILE).exists():
        return False
    held = LogDir(directory)
    try:
        held.acquire()
    except LogDirError:
        return True
    except OSError:
        return False
    held.release()
    return False


def _directory(directory: Path, host: Host, segment: int) -> Iterator[Finding]:
    subject = str(directory)
    base = _nearest(directory)
    if not base.is_dir():
        why = "The broker makes its log directories, but not in the place of a file."
        yield problem(subject, f"{base} is no directory", "Name another directory in log.dirs.", why)
        return
    yield _place(subject, base, host)
    yield _space(subject, base, segment)
    yield from _inodes(subject, base)
    yield _speed(directory, base)
    if directory.is_dir() and directory.stat().st_mode & PRIVATE:
        why = "All users of the machine can delete and change records."
        yield warning(subject, "all users may write to it", f"chmod o-w {directory}", why)


def _nearest(directory: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    return next(each for each in (directory, *directory.parents) if each.exists() or each.parent == each)


def mount_of(path: Path, host: Host) -> Mount | None:
    """The mount that a path lies on, None when the kernel does not tell."""
    best = None
    for line in (host.text("proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if len(fields) < 6 or not tail:
            continue
        place = ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
        # The last of several mounts on one place hides the others.
        if path.is_relative_to(place) and (best is None or len(place) >= len(best.place)):
            best = Mount(place, tail[0], tuple(fields[5].split(",")))
    return best


def _place(subject: str, base: Path, host: Host) -> Finding:
    mount = mount_of(base.resolve(), host)
    if mount is None:
        return unknown(subject, "/proc/self/mountinfo does not name its file system")
    found = f"{mount.kind} on {mount.place}"
    if "ro" in mount.options:
        why = "The broker writes to its log directories."
        return problem(subject, f"{found}, read-only", f"Mount it with rw: mount -o remount,rw {mount.place}", why)
    if mount.kind in IN_MEMORY:
        why = "A restart of the machine loses all records, and the records take memory."
        return warning(subject, found, "Put the directory on a disk.", why)
    if mount.kind in LAYERS:
        why = "The records disappear together with the container."
        return warning(subject, found, "Mount a volume at the directory.", why)
    if OVER_A_NETWORK.fullmatch(mount.kind):
        why = "Locks, memory maps and syncs of a network file system fail where a disk's do not."
        return warning(subject, found, "Put the directory on a disk of the machine (ext4, xfs).", why)
    return satisfied(subject, found)


def _space(subject: str, base: Path, segment: int) -> Finding:
    size, free = LogDir(base).volume()
    found = f"{size_text(free)} free of {size_text(size)}"
    change = "Delete or move data, lower log.retention.hours or log.retention.bytes, or use a larger volume."
    why = "A full volume takes the log directory offline, and a broker without log directories stops."
    if free < LEAST_FREE:
        return problem(subject, found, change, why)
    if free < max(size * FREE_SHARE, 2 * segment):
        return warning(subject, found, change, why)
    return satisfied(subject, found)


def _inodes(subject: str, base: Path) -> Iterator[Finding]:
    volume = os.statvfs(base)
    # Some file systems (btrfs) have no fixed number of inodes.
    if volume.f_files and volume.f_favail < LEAST_INODES:
        why = "Each segment has three files or more; a volume without inodes takes no new segment."
        change = "Delete small files, or make the file system with more inodes (mkfs.ext4 -N)."
        yield warning(subject, f"{volume.f_favail:,} free inodes", change, why)


def _speed(directory: Path, base: Path) -> Finding:
    """Write and sync an unlinked file, which nobody sees."""
    subject = str(directory)
    times = []
    try:
        with tempfile.TemporaryFile(dir=base) as file:
            for _ in range(SYNCS):
                began = time.perf_counter()
                file.write(b"\0" * SYNC_BYTES)
                file.flush()
                os.fsync(file.fileno())
                times.append((time.perf_counter() - began) * 1000)
    except OSError as error:
        change = f"Give {directory} to the user that runs the broker (chown), and run this command as that user."
        if base != directory:
            change = f"Make it for the broker's user: install -d -o USER {directory} (systemd: StateDirectory= does)."
        why = "The broker makes files in its log directories."
        return problem(subject, f"cannot be written: {error.strerror or error}", change, why)
    milliseconds = statistics.median(times)
    found = f"a sync takes {milliseconds:.1f} ms"
    if milliseconds > SLOW_SYNC_MS:
        why = "Checkpoints, new segments and the metadata store wait for syncs."
        return warning(subject, found, "Use a faster disk, or one with a battery-backed cache.", why)
    return satisfied(subject, found)


def _shared_volumes(directories: list[Path]) -> Iterator[Finding]:
    volumes: dict[int, list[Path]] = {}
    for each in directories:
        volumes.setdefault(_nearest(each).stat().st_dev, []).append(each)
    for shared in volumes.values():
        if len(shared) > 1:
            names = ", ".join(map(str, shared))
            why = "The broker places partitions as if each directory were a disk; one failure takes all of them."
            yield warning("log directories", f"on one volume: {names}", "Give each directory a volume.", why)


def _identity(subject: Subject, directories: list[str]) -> Iterator[Finding]:
    try:
        stored = meta_properties.stored(meta_properties.read_all(directories))
        configured_id(subject.config, stored.broker_id)
    except (KafkaError, OSError) as error:
        why = "meta.properties ties a log directory to one broker, so that no broker serves foreign logs."
        yield problem("meta.properties", str(error), "Point log.dirs at this broker's own directories.", why)
        return
    if stored.cluster_id is not None:
        yield satisfied("meta.properties", f"broker {stored.broker_id} of cluster {stored.cluster_id}")
