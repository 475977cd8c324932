#!/usr/bin/env python3
"""Django's own tests, unmodified, from its source distribution, with its PostgreSQL backend, against `ropewalk serve`.

    suite.py                    the modules of `run.py --all`
    suite.py --everything       every module that uses a database
    suite.py MODULE...          these, such as queries, or queries.test_qs_combinators
    --binary PATH               default: $CARGO_TARGET_DIR/debug/ropewalk, or target/debug/ropewalk
    --postgres                  run PostgreSQL 15 instead; what fails there is noted in known.txt with --write
    --causes                    list the messages of failed tests by count
    --write                     write known.txt again from this run: reasons stay, new lines have none

Each module has its own two servers, because a server has one database and Django needs two. `known.txt` names each test that fails,
with its reason. The run fails if another test fails, or if one that is named passes; tests that fail with PostgreSQL are not
counted.
"""

import collections
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
CLIENTS = HERE.parents[1]
sys.path[:0] = [str(CLIENTS), str(HERE.parent)]

import foreign  # noqa: E402
from cluster import Cluster  # noqa: E402
from servers import Server  # noqa: E402

NAME = "Django's own tests"
#: The words of known.txt for a test that PostgreSQL fails, too.
ANY_SERVER = "fails with PostgreSQL, too"
#: Those of `run.py --all`.
MODULES = ["basic", "queries", "lookup", "aggregation"]
#: Modules of `--everything` that need programs, networks or geographic data.
LEFT_OUT = ["gis_tests", "import_error_package", "test_runner_apps", "requirements", "templates", "bash_completion", "selenium"]
#: Longest time of one module, seconds; only to end a hang.
PATIENCE = 3600


@contextlib.contextmanager
def _ropewalk(binary):
    """Two servers; gives their databases in the form of ropewalk_settings."""
    options = ["--postgres-listen", "127.0.0.1:0", "--log-level", "warn"]
    with Server(binary, listen="off", options=options) as one, Server(binary, listen="off", options=options) as two:
        yield ",".join(f"{server.postgres.replace(':', ' ')} ropewalk ropewalk" for server in (one, two)), ["--keepdb"]


@contextlib.contextmanager
def _postgresql(_binary):
    with Cluster() as server:
        yield ",".join(f"{server.host} {server.port} ropewalk test_{name}" for name in ("default", "other")), []


def outcomes(python, tree, module, databases, log):
    """Runs one module; gives the outcome and message of each of its tests."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-django-") as place:
        recorded = Path(place) / "outcomes"
        with databases as (named, options):
            command = [python, "runtests.py", "--settings=ropewalk_settings", "--parallel=1", "--noinput", *options, module]
            env = os.environ | {
                "PYTHONPATH": f"{HERE}{os.pathsep}{tree}", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
                "DJANGO_DATABASES": named, "DJANGO_OUTCOMES": str(recorded), "DJANGO_TEST_SECONDS": str(foreign.PATIENCE),
                "TMPDIR": place,
            }
            with open(log, "w") as output, contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, cwd=tree / "tests", env=env, stdout=output, stderr=subprocess.STDOUT, timeout=PATIENCE)
        lines = [json.loads(line) for line in recorded.read_text().splitlines()] if recorded.exists() else []
    found = {name: ("failed", "not run") for name, outcome, _ in lines if outcome == "found"}
    # If the preparation of a class failed, all its tests count as failed.
    broken = {}
    for name, outcome, message in lines:
        if outcome != "found" and found.get(name, ("", "not run"))[1] == "not run":
            found[name] = (outcome, message)
        elif outcome == "failed":
            found[name] = (outcome, message)
        if prepared := re.match(r"setUpClass \((.+)\)$", name):
            broken[prepared.group(1)] = (outcome, message)
            found.pop(name, None)
    for name, (_, message) in found.items():
        if message == "not run":
            found[name] = broken.get(name.rpartition(".")[0], found[name])
    if not found:
        said = Path(log).read_text().strip().splitlines()
        found[f"{module}.all"] = ("failed", said[-1] if said else "nothing ran")
    return found


def modules_of(tree):
    """All modules of the suite."""
    places = sorted((tree / "tests").iterdir())
    return [place.name for place in places if (place / "__init__.py").exists() and place.name not in LEFT_OUT]


def cause(message):
    """A message without the names and numbers that are in it."""
    line = message.splitlines()[0] if message else ""
    return re.sub(r"\b\d+\b", "N", re.sub(r"\"[^\"]*\"|'[^']*'", "…", line))[:160]


def run(python, place, binary, version, modules, peer=False, causes=False, write=False):
    """Runs the modules and prints their results; returns whether all is as known.txt says."""
    tree = foreign.sources(python, place, "Django", version)
    logs = place / "django-logs"
    logs.mkdir(parents=True, exist_ok=True)
    known = foreign.Known(HERE / "known.txt")
    everywhere = {name for name, reason in known.reasons.items() if ANY_SERVER in reason}
    found, by = {}, collections.Counter()
    for module in modules or modules_of(tree):
        databases = (_postgresql if peer else _ropewalk)(binary)
        part = outcomes(python, tree, module, databases, logs / f"{module}{'.postgresql' if peer else ''}.log")
        found |= part
        counts = collections.Counter(outcome for outcome, _ in part.values())
        by += counts
        print(f"{module:<36} {counts['passed']:>5} passed {counts['failed']:>4} failed {counts['skipped']:>4} skipped", flush=True)
    (logs / ("postgresql.json" if peer else "ropewalk.json")).write_text(json.dumps(found, indent=1))
    if causes:
        for message, count in collections.Counter(cause(m) for outcome, m in found.values() if outcome == "failed").most_common():
            print(f"{count:>5} {message}")
    uncounted = sum(found[name][0] == "failed" for name in everywhere.intersection(found))
    ran = by["passed"] + by["failed"] - uncounted
    print(f"Django {version}: {by['passed']} of {ran} that ran passed, {100 * by['passed'] / max(ran, 1):.1f} %; "
          f"{uncounted} that fail with PostgreSQL are not counted; all in {logs}")
    if peer:
        if write:
            known.reasons |= {name: ANY_SERVER for name, (outcome, _) in found.items() if outcome == "failed"}
            known.write(found, known.reasons.keys())
        return True
    good = known.judge(NAME, found, everywhere)
    if write:
        known.write(found, everywhere)
    return good


def main():
    import run as clients

    parser = foreign.arguments(__doc__, clients.TARGET)
    parser.add_argument("--everything", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--causes", action="store_true")
    parser.add_argument("modules", nargs="*")
    args = parser.parse_args()
    clients.PLACE.mkdir(parents=True, exist_ok=True)
    python = clients.environment()
    modules = args.modules or ([] if args.everything else MODULES)
    good = run(
        python, clients.PLACE, args.binary.resolve(), clients.pinned("Django"), modules, args.postgres, args.causes, args.write
    )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
