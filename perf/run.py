"""Measures kafkapy beside Apache Kafka, other brokers and the machine's own limit, and writes the report.

    .venv/bin/python perf/run.py [--smoke] [--work W1,W2] [--peers kafkapy,apache-4.x,limit] [--rounds 5]

KAFKAPY_OTHER_TREE=<work tree of another commit, built> adds its broker as the peer kafkapy-other, in the same rounds.

Results go to .cache/perf/results.json (or --json); a whole run also writes docs/performance.json, docs/performance.md
with its charts, and the table in README.md. --report puts the works of a partial run into them, in place of what was
stored of these works; --report-only writes the pages from stored results. Ends with 1 when anything measured gave an
error.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

import measure  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
import work  # noqa: E402
from peers import Peer, PeerMissingError  # noqa: E402
from work.session import Session  # noqa: E402

SMOKE_PEERS = "kafkapy,limit"
DOCS = ROOT / "docs"


def prepared(wanted: list[str]) -> tuple[list[Peer], list[dict[str, str]]]:
    """The peers that can be had, and what is to be said about each."""
    usable, said = [], []
    for peer in peers.ALL:
        entry = {"name": peer.name, "title": peer.title, "version": "", "status": "measured", "why": ""}
        if peer.name not in wanted:
            entry |= {"status": "left out", "why": f"not asked for; --peers {peer.name} measures it"}
        else:
            try:
                entry["version"] = peer.prepare()
                usable.append(peer)
            except PeerMissingError as error:
                entry |= {"status": "missing", "why": str(error)}
        said.append(entry)
    return usable, said


def written(results: report.Results) -> None:
    """The report page with its charts, and the README's table."""
    report.write(results, DOCS)
    report.write_readme(results, ROOT / "README.md")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="proves in under a minute that the instrument runs")
    parser.add_argument("--work", help=f"of {','.join(work.ALL)}")
    parser.add_argument("--peers", help=f"of {','.join(peer.name for peer in peers.ALL)}")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--json", type=Path, default=measure.CACHE / "results.json")
    parser.add_argument("--data-dir", type=Path, default=measure.CACHE / "data", help="where logs are written")
    parser.add_argument("--report", action="store_true", help="put the works of a partial run into docs/performance.md")
    parser.add_argument("--report-only", action="store_true", help="write the report from docs/performance.json")
    options = parser.parse_args()
    if options.report_only:
        written(json.loads((DOCS / "performance.json").read_text()))
        return 0
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    measure.run_before_others()

    chosen_work = measure.chosen(list(work.ALL), options.work)
    wanted = measure.chosen(
        [peer.name for peer in peers.ALL], options.peers or (SMOKE_PEERS if options.smoke else None)
    )
    usable, said = prepared(wanted)
    for entry in said:
        print(f"{entry['title']}: {entry['status']} {entry['version'] or entry['why']}", file=sys.stderr)
    options.data_dir.mkdir(parents=True, exist_ok=True)
    session = Session(usable, options.rounds or (1 if options.smoke else 5), options.smoke, options.data_dir)
    runs = {}
    for name in chosen_work:
        date = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        runs[name] = measure.machine() | {"date": date, "rounds": session.rounds, "smoke": options.smoke}
        session.work = name
        print(f"== {name}: {work.ALL[name][0]}", file=sys.stderr)
        started = time.monotonic()
        try:
            work.ALL[name][1](session)
        except Exception as error:
            session.fail("all", "run", error)
        runs[name]["took_s"] = round(time.monotonic() - started)
        print(f"== {name} took {runs[name]['took_s']} s", file=sys.stderr)
    results = {
        "runs": runs,
        "peers": said,
        "work": {name: work.ALL[name][0] for name in chosen_work},
        "elsewhere": work.ELSEWHERE,
        "errors": session.errors,
        "rows": [asdict(row) | {"measured": runs[row.work]["date"]} for row in session.rows.values()],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1))
    print(report.table(results))
    whole = not options.smoke and chosen_work == list(work.ALL) and not options.peers
    if whole or options.report:
        stored = DOCS / "performance.json"
        if not whole and stored.exists():
            results = report.merged(json.loads(stored.read_text()), results)
        stored.write_text(json.dumps(results, indent=1))
        written(results)
        print(f"\nwrote {DOCS / 'performance.md'}")
    for text in session.errors:
        print(f"ERROR {text}", file=sys.stderr)
    return 1 if session.errors else 0


if __name__ == "__main__":
    sys.exit(main())
