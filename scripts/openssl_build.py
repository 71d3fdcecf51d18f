"""The OpenSSL of the wheels, built from the source that Debian publishes.

Its 3.5 takes a fifth to a half less CPU for TLS data than the 3.0 of Debian 12, where the wheels are built. It keeps
Debian's places of certificates and configuration (/usr/lib/ssl). The same source and compiler give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from pathlib import Path

from cross_build import MIRROR

ROOT = Path(__file__).resolve().parent.parent
VERSION = "3.5.7"
ARCHIVE = f"pool/main/o/openssl/openssl_{VERSION}.orig.tar.gz"
SHA256 = "a8c0d28a529ca480f9f36cf5792e2cd21984552a3c8e4aa11a24aa31aeac98e8"
LEFT_OUT = ("no-apps", "no-docs", "no-engine", "no-legacy", "no-tests")
PLACES = ("--prefix=/usr", "--libdir=lib", "--openssldir=/usr/lib/ssl")
TIMEOUT_S = 60.0


def openssl(machine: str = "") -> Path:
    """The directory with include/ and lib/, made once in build/. `machine`: another than this one."""
    target = ROOT / "build" / f"openssl-{VERSION}-{machine or platform.machine()}"
    ready = target / "ready"
    if not ready.exists():
        shutil.rmtree(target, ignore_errors=True)
        build(target, machine)
        ready.touch()
    return target


def build(target: Path, machine: str = "") -> None:
    """Fetch, compile, and put headers and shared libraries below `target`."""
    subprocess.run([str(ROOT / "scripts" / "system-packages"), "wheels"], check=True)
    print(f"OpenSSL {VERSION} is built, once: some minutes", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="kafkapy-openssl-") as name:
        directory = Path(name)
        archive = fetched(f"{MIRROR}/{ARCHIVE}", directory / "source.tar.gz")
        with tarfile.open(archive) as file:
            released = max(member.mtime for member in file)
            # The archive is the known one. Debian's Python 3.11.2 has no `filter` yet.
            file.extractall(directory)
        source = directory / f"openssl-{VERSION}"
        known = {"SOURCE_DATE_EPOCH": str(int(released)), "LC_ALL": "C"}
        # Flags and compilers of the environment are those of the kernels.
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "CCACHE_DISABLE") if name in os.environ}
        cross = [f"--cross-compile-prefix={machine}-linux-gnu-"] if machine else []
        options = [f"linux-{machine or platform.machine()}", "shared", *LEFT_OUT, *PLACES, *cross]
        for command in (
            ["./Configure", *options],
            ["make", "-s", f"-j{len(os.sched_getaffinity(0))}", "build_sw"],
            ["make", "-s", "install_dev", f"DESTDIR={directory / 'installed'}"],
        ):
            done = subprocess.run(
                command, cwd=source, env=kept | known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", check=False,
            )  # fmt: skip
            if done.returncode:
                said = done.stdout[-3000:]
                sys.exit(f"openssl_build.py: {command[0]} failed with exit code {done.returncode}\n{said}")
        installed = directory / "installed" / "usr"
        shutil.copytree(installed / "include", target / "include")
        (target / "lib").mkdir()
        for library in sorted((installed / "lib").glob("lib*.so*")):
            shutil.copy2(library, target / "lib", follow_symlinks=False)


def fetched(url: str, target: Path) -> Path:
    """The source archive at `target`. Ends the program if it cannot be had, or is another."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except OSError as error:
        sys.exit(f"openssl_build.py: {url} cannot be fetched: {error}")
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"openssl_build.py: {url} has the SHA-256 {found}, not {SHA256}")
    return target


def variables(place: Path, others: dict[str, str]) -> dict[str, str]:
    """The environment of a build of kernels against it. `others`: that of another machine, see cross_build.py."""
    flags = f"-L{place / 'lib'} {others.get('LDFLAGS', os.environ.get('LDFLAGS', ''))}".strip()
    # setuptools gives CFLAGS to C alone, and the kernels are C++.
    return others | {"CPPFLAGS": f"-I{place / 'include'} {os.environ.get('CPPFLAGS', '')}".strip(), "LDFLAGS": flags}


def component() -> dict[str, object]:
    """Its entry in a CycloneDX bill of materials."""
    purl = (
        f"pkg:generic/openssl@{VERSION}?checksum=sha256:{SHA256}&download_url=https://deb.debian.org/debian/{ARCHIVE}"
    )
    return {
        "bom-ref": f"openssl=={VERSION}",
        "type": "library",
        "name": "openssl",
        "version": VERSION,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "hashes": [{"alg": "SHA-256", "content": SHA256}],
        "purl": purl,
    }


def is_inside(wheel: Path) -> bool:
    """Whether a repaired wheel brings this version."""
    with zipfile.ZipFile(wheel) as file:
        libraries = [name for name in file.namelist() if name.split("/")[-1].startswith("libcrypto")]
        return [f"OpenSSL {VERSION} ".encode() in file.read(name) for name in libraries] == [True]
