"""How many records a second `archive` writes to Parquet: its two engines side by side.

    python perf/spark/archive.py [--rows 2000000] [--rounds 2] [--layout hourly] [--json FILE]

One kafkapy broker (storage in memory, in a process of its own), one Spark session (local[2]) for both engines; after
a round that is not counted they run in turn, A B A B, each into a directory of its own. Records are those of read.py
(keys of 8 bytes, values of 100), all columns, snappy. Both write what the topic has in one commit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from read import fill, session

from kafkapy.testing.broker_process import BrokerProcess

ENGINES = ("arrow", "spark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--layout", default="hourly")
    parser.add_argument("--file-size", type=int, default=64 << 20)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    from kafkapy_spark.jobs.archive import archive

    results: dict[str, list[float]] = {engine: [] for engine in options.engines.split(",")}
    with BrokerProcess(overrides={"kafkapy.storage.backend": "memory"}) as broker:
        fill(broker.bootstrap, "rows", options.partitions, options.rows, "none")
        with session([]) as spark:
            for number in range(options.rounds + 1):
                for engine, measured in results.items():
                    with tempfile.TemporaryDirectory() as directory:
                        summary = archive(
                            spark,
                            "rows",
                            f"{directory}/archive",
                            kafka={"bootstrap.servers": broker.bootstrap},
                            engine=engine,
                            layout=options.layout,
                            target_file_bytes=options.file_size,
                        )
                        sizes = [path.stat().st_size for path in Path(directory).rglob("*.parquet")]
                    assert summary.rows == options.rows, summary
                    rate = summary.rows / summary.seconds
                    if number:
                        measured.append(rate)
                    print(
                        f"{engine:8} {rate:12,.0f} records/s, {len(sizes)} files of {sum(sizes) >> 20} MB"
                        f"{'' if number else '  (not counted)'}",
                        flush=True,
                    )
    for engine, measured in results.items():
        print(f"{engine:8} {statistics.median(measured):12,.0f} records/s (median)")
    if options.json:
        options.json.write_text(json.dumps({"rows": options.rows, "layout": options.layout, "engines": results}))


if __name__ == "__main__":
    main()
