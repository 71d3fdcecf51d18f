"""Versions: kafkapy, Python, the kernel, libraries, plugins, and the packages that the configuration needs."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import sysconfig
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import PluginError
from kafkapy.installed_plugins import installed_plugins
from kafkapy.tools.host_checks.finding import Finding, Subject, problem, satisfied, warning
from kafkapy.version import __version__

__all__ = ["check", "check_installation"]

LAST_KERNELS: Final = ("kafkapy._speedups.requests.data_plane", "kafkapy._speedups.base.tls_transport")
"""Kernels that cimport most of the others."""


def check(subject: Subject) -> Iterator[Finding]:
    """The findings."""
    yield from check_installation()
    yield from _packages(subject.config)


def check_installation() -> Iterator[Finding]:
    """The findings that need no configuration."""
    yield satisfied("kafkapy", f"{__version__} in {Path(__file__).parents[2]}")
    yield _python()
    release = os.uname()
    libc = " ".join(platform.libc_ver()).strip() or "an unknown C library"
    yield satisfied("system", f"{release.sysname} {release.release}, {release.machine}, {libc}")
    if os.geteuid() == 0:
        why = "A broker without privileges cannot harm the machine, and its files then belong to its user."
        change = "Run the broker, and this command, as a separate user."
        yield warning("user", "root", change, why)
    yield from _kernels()
    yield from _plugins()


def _python() -> Finding:
    version = platform.python_version()
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        why = "The kernels need the GIL: this build of Python switches it on, and is slower than the usual one."
        return warning("Python", f"{version}, free-threaded", "Use the usual build of Python.", why)
    return satisfied("Python", f"{version} ({sys.executable})")


def _kernels() -> Iterator[Finding]:
    try:
        for name in LAST_KERNELS:
            import_module(name)
    except (ImportError, ValueError, TypeError) as error:  # missing, of another build, or of another Python
        why = "The data plane is compiled for one version of Python and of its libraries."
        change = "Install kafkapy again (pip install --force-reinstall kafkapy; in a source tree: make build)."
        yield problem("kernels", str(error), change, why)
        return
    library = _loaded("libcrypto")
    if library is not None:
        yield satisfied("OpenSSL", f"{_openssl_version(library)} ({library})")


def _loaded(name: str) -> str | None:
    """The path of the loaded library that our kernels link, None without one.

    A wheel has its libraries beside the package, in kafkapy.libs; those come first.
    """
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    paths = dict.fromkeys(line.split(None, 5)[5] for line in lines if len(line.split(None, 5)) == 6)
    found = [path for path in paths if Path(path).name.startswith(name)]
    return next((path for path in found if "kafkapy.libs" in path), found[0] if found else None)


def _openssl_version(library: str) -> str:
    version = ctypes.CDLL(library).OpenSSL_version
    version.restype = ctypes.c_char_p
    text: bytes = version(0)
    return text.decode(errors="replace")


def _plugins() -> Iterator[Finding]:
    try:
        found = installed_plugins()
    except PluginError as error:
        why = "The broker does not start with plugins that contradict each other."
        yield problem("plugins", str(error), "Uninstall one of them.", why)
        return
    if found:
        yield satisfied("plugins", ", ".join(f"{each.name} ({each.distribution})" for each in found))


def _packages(config: BrokerConfig) -> Iterator[Finding]:
    """Packages that the configuration needs and pip installs only when asked."""
    mechanisms = {
        mechanism
        for each in config.listeners
        if each.security_protocol.sasl
        for mechanism in config.for_listener(each.listener_name, "sasl.enabled.mechanisms") or ()
    }
    needed = {
        "gssapi": ("gssapi", "GSSAPI" in mechanisms, "sasl.enabled.mechanisms has GSSAPI"),
        "puresasl": (
            "zookeeper", bool(config.get_password("kafkapy.zookeeper.sasl.jaas.config")),
            "kafkapy.zookeeper.sasl.jaas.config is set",
        ),
    }  # fmt: skip
    for module, (extra, wanted, reason) in needed.items():
        if wanted and find_spec(module) is None:
            why = "The broker does not start without the package that logs in."
            yield problem(f"package {module}", reason, f"pip install 'kafkapy[{extra}]'", why)
