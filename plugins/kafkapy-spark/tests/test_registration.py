"""How Spark finds the format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1]


def run(code: str) -> str:
    """What a new process prints."""
    code = f"import sys; sys.path.insert(0, {str(PLUGIN)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_module_that_spark_imports_needs_nothing() -> None:
    """Acceptance 2: a module pyspark_* that raises would break every source of a session."""
    without = "sys.modules['pyspark'] = None\n"
    assert run(without + "import pyspark_kafkapy as m; print(hasattr(m, 'DefaultSource'))") == "False"


def test_what_a_broker_loads_needs_neither_spark_nor_a_command_line() -> None:
    without = "for name in ('pyspark', 'pyarrow', 'click'): sys.modules[name] = None\n"
    assert run(without + "import kafkapy_spark.plugin; print('kafkapy_spark.cli' in sys.modules)") == "False"


def test_the_module_imports_nothing_before_it_is_used() -> None:
    """Acceptance 2."""
    pytest.importorskip("pyspark")
    without = "for name in ('kafkapy', 'kafkapy_spark', 'pyarrow'): sys.modules[name] = None\n"
    assert run(without + "import pyspark_kafkapy; print(pyspark_kafkapy.DefaultSource.name())") == "kafkapy"


def test_the_source_becomes_the_real_one() -> None:
    pytest.importorskip("pyspark")
    code = """
from pyspark_kafkapy import DefaultSource
from pyspark.sql.datasource import CaseInsensitiveDict
source = DefaultSource(options=CaseInsensitiveDict({"includeHeaders": "true"}))
print(type(source).__name__, source.schema().fieldNames()[-1])
"""
    assert run(code) == "KafkapyDataSource headers"


def test_the_command_lines() -> None:
    from click.testing import CliRunner
    from kafkapy_spark.plugin import register_commands
    from kafkapy_spark.version import __version__

    (command,) = register_commands()
    assert command.name == "spark"
    assert __version__ in CliRunner().invoke(command, ["--version"]).output
