"""An older pyspark is refused in one sentence, where the connector is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1]
DATASOURCE = "class DataSource: ...\n"
NEW = DATASOURCE + "class DataSourceStreamArrowWriter: ...\n"


@pytest.mark.parametrize(
    ("version", "datasource", "lacks"),
    [
        ("4.0.2", DATASOURCE, "pyspark.sql.datasource.DataSourceStreamArrowWriter"),
        ("4.1.1", NEW, "pyspark.sql.streaming.datasource.SupportsTriggerAvailableNow"),
        ("3.5.9", None, "pyspark.sql.datasource.DataSourceStreamArrowWriter"),
    ],
)
def test_an_older_pyspark_is_refused_at_the_import(
    tmp_path: Path, version: str, datasource: str | None, lacks: str
) -> None:
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (tmp_path / "pyspark" / "sql" / "__init__.py").write_text("")
    if datasource is not None:
        (tmp_path / "pyspark" / "sql" / "datasource.py").write_text(datasource)
    sentence = f"kafkapy-spark needs pyspark 4.2 or newer, and this is pyspark {version}: it has no {lacks}"
    for code in ("import pyspark, kafkapy_spark", "import kafkapy_spark; kafkapy_spark.configure"):
        program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(PLUGIN)!r}]\n{code}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == f"ImportError: {sentence}"
