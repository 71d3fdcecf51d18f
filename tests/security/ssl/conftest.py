"""Certificates and Java's tools for the tests of stores."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkapy.security.ssl.certificates import Identity, create_authority

Keytool = Callable[..., None]


@pytest.fixture(scope="session")
def authority() -> Identity:
    return create_authority("Test CA")


@pytest.fixture(scope="session")
def identity(authority: Identity) -> Identity:
    return authority.issue("CN=broker,OU=Kafka,O=Example,C=DE", hosts=["localhost", "127.0.0.1"])


@pytest.fixture
def keytool(tmp_path: Path) -> Keytool:
    """keytool of Java, run in the test's directory."""
    program = shutil.which("keytool")
    if program is None:
        pytest.skip("keytool of Java is not installed")

    def run(*arguments: str) -> None:
        command = [program, "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.fixture
def openssl(tmp_path: Path) -> Keytool:
    """The program openssl, run in the test's directory."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("the program openssl is not installed")

    def run(*arguments: str) -> None:
        command = [program, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run
