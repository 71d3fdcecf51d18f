"""A Kerberos realm on this machine: MIT's key distribution centre on a free port, with a database of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from waiting import wait_until

REALM = "KAFKA.TEST"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")

needs_kerberos = pytest.mark.skipif(
    find_spec("gssapi") is None or not all(shutil.which(program, path=PATH) for program in PROGRAMS),
    reason="needs the package gssapi, and krb5-kdc, krb5-admin-server and krb5-user of Debian",
)


@dataclass
class Realm:
    """A running realm. `environment` is for programs that use it."""

    directory: Path
    port: int

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the libraries of Kerberos read."""
        return {
            "KRB5_CONFIG": str(self.directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.directory / 'no-tickets'}",
            "KRB5RCACHEDIR": str(self.directory),
            "PATH": PATH,
        }

    def run(self, *command: str, text: str = "", **variables: str) -> str:
        """A program's output. AssertionError when it fails."""
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, env={**os.environ, **self.environment, **variables}
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def admin(self, command: str) -> str:
        """The output of a command of kadmin.local."""
        return self.run("kadmin.local", "-r", REALM, "-q", command)

    def add(self, principal: str, *options: str) -> Path:
        """A new principal with a random key, and the keytab that has it."""
        self.admin(f"addprinc -randkey {' '.join(options)} {principal}")
        return self.keytab(principal)

    def keytab(self, principal: str) -> Path:
        """A keytab with a new key of the principal."""
        file = self.directory / f"{principal.replace('/', '_')}.keytab"
        self.admin(f"ktadd -k {file} {principal}")
        return file

    def kinit(self, principal: str, keytab: Path, *options: str) -> Path:
        """A ticket cache with a fresh ticket of the principal."""
        cache = self.directory / f"{principal.replace('/', '_')}.tickets"
        self.run("kinit", *options, "-k", "-t", str(keytab), "-c", str(cache), principal)
        return cache


@contextmanager
def kerberos_realm(directory: Path) -> Iterator[Realm]:
    """A realm that runs as long as the context."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (directory / "krb5.conf").write_text(
        f"""[libdefaults]
    default_realm = {REALM}
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {REALM} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {REALM}
    127.0.0.1 = {REALM}
"""
    )
    (directory / "kdc.conf").write_text(
        f"""[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {REALM} = {{
        database_name = {directory}/principal
        key_stash_file = {directory}/stash
        acl_file = {directory}/acl
        max_life = 10h
        max_renewable_life = 7d
    }}
"""
    )
    realm = Realm(directory, port)
    realm.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    with (directory / "kdc.log").open("wb") as log:
        process = subprocess.Popen(
            ["krb5kdc", "-n"], env={**os.environ, **realm.environment}, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: _answers(process, port), "the key distribution centre answers")
            yield realm
        finally:
            process.terminate()
            process.wait()


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, "the key distribution centre ended"
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
