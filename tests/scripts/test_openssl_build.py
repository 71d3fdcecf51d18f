"""scripts/openssl_build.py without a compiler: what is fetched is checked, and kernels are built against it first."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import cross_build
import openssl_build
import pytest
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.sysconfig import customize_compiler


def test_another_archive_than_the_known_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "archive"
    source.write_bytes(b"not OpenSSL")
    with pytest.raises(SystemExit, match=f"has the SHA-256 {hashlib.sha256(b'not OpenSSL').hexdigest()}, not"):
        openssl_build.fetched(source.as_uri(), tmp_path / "fetched")
    monkeypatch.setattr(openssl_build, "SHA256", hashlib.sha256(b"not OpenSSL").hexdigest())
    assert openssl_build.fetched(source.as_uri(), tmp_path / "fetched").read_bytes() == b"not OpenSSL"


def test_an_archive_that_cannot_be_fetched_is_named(tmp_path: Path) -> None:
    missing = (tmp_path / "missing").as_uri()
    with pytest.raises(SystemExit, match=f"{missing} cannot be fetched"):
        openssl_build.fetched(missing, tmp_path / "fetched")


def test_kernels_find_it_before_the_one_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPPFLAGS", "-DX")
    monkeypatch.delenv("LDFLAGS", raising=False)
    place = Path("/openssl")
    assert openssl_build.variables(place, {}) == {"CPPFLAGS": "-I/openssl/include -DX", "LDFLAGS": "-L/openssl/lib"}
    folder = tmp_path / "root" / "usr" / "lib" / cross_build.PYTHON
    folder.mkdir(parents=True)
    (folder / "_sysconfigdata__aarch64-linux-gnu.py").touch()
    others = cross_build.variables(tmp_path / "root", "aarch64", tmp_path / "scratch")
    both = openssl_build.variables(place, others)
    assert both["LDFLAGS"] == f"-L/openssl/lib {others['LDFLAGS']}"
    assert both["CXX"] == others["CXX"]


@pytest.mark.parametrize("machine", ["", *cross_build.MACHINES])
def test_setuptools_gives_its_headers_and_libraries_to_kernels(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    folder = root / "usr" / "lib" / cross_build.PYTHON
    folder.mkdir(parents=True)
    others: dict[str, str] = {}
    if machine:
        (folder / f"_sysconfigdata__{machine}-linux-gnu.py").touch()
        others = cross_build.variables(root, machine, tmp_path / "scratch")
    for name, value in openssl_build.variables(Path("/openssl"), others).items():
        if not name.startswith(("_", "PYTHON")):
            monkeypatch.setenv(name, value)
    compiler = new_compiler()
    customize_compiler(compiler)
    compile_cxx, link_cxx = compiler.compiler_so_cxx, compiler.linker_so_cxx
    assert "-I/openssl/include" in compile_cxx
    assert "-L/openssl/lib" in link_cxx
    if machine:
        headers = [each for each in compile_cxx if each.startswith("-I")]
        assert headers == [f"-I{root}/usr/include/{cross_build.PYTHON}", "-I/openssl/include"]
        libraries = [each for each in link_cxx if each.startswith("-L")]
        assert libraries == ["-L/openssl/lib", f"-L{cross_build.libraries(root, machine)}"]


@pytest.mark.parametrize(
    ("libraries", "found"),
    [
        ({}, False),
        ({"kafkapy.libs/libcrypto-1f.so.3": b"..OpenSSL 3.0.17 1 Jul 2025"}, False),
        ({"kafkapy.libs/libcrypto-1f.so.3": f"..OpenSSL {openssl_build.VERSION} 1 Jul 2026".encode()}, True),
    ],
)
def test_a_wheel_tells_which_one_it_brings(libraries: dict[str, bytes], found: bool, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as file:
        file.writestr("kafkapy/__init__.py", "")
        for name, content in libraries.items():
            file.writestr(name, content)
    assert openssl_build.is_inside(tmp_path / "a.whl") is found


def test_the_bill_names_the_archive_and_its_hash() -> None:
    found = openssl_build.component()
    assert found["version"] == openssl_build.VERSION
    assert openssl_build.SHA256 in str(found["purl"])
    assert str(found["purl"]).endswith(openssl_build.ARCHIVE)
