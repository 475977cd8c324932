#!/usr/bin/env python3
"""SQLAlchemy's compliance suite of dialects, unmodified, from its source distribution, against `ropewalk serve`.

    suite.py [PATTERN]          tests whose names have the pattern, as `pytest -k` takes it
    --binary PATH               default: $CARGO_TARGET_DIR/debug/ropewalk, or target/debug/ropewalk
    --write                     write known.txt anew from this run: reasons stay, new lines have none

`known.txt` names each test that fails, with its reason. The run fails if another one does, or if one that is named passes.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import foreign  # noqa: E402
from servers import Server  # noqa: E402

NAME = "SQLAlchemy's compliance suite"
#: Makes the schemas that the suite wants to find.
SCHEMAS = """
import sys
import psycopg

with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    for name in ("test_schema", "test_schema_2"):
        connection.execute(f"CREATE SCHEMA {name}")
"""


def outcomes(python, tree, binary, report, pattern):
    """Runs the suite on one server; gives the outcome and message of each test."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-sqlalchemy-") as place, Server(
        binary, listen="off", options=["--postgres-listen", "127.0.0.1:0", "--log-level", "warn"]
    ) as server:
        subprocess.run([python, "-c", SCHEMAS, f"postgresql://ann@{server.postgres}/ropewalk"], check=True)
        # `-s` makes the tests import the installed library, not the one beside them.
        command = ["-s", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "suite_plugin", "-W", "ignore"]
        command += ["--timeout", str(foreign.PATIENCE), "--tb", "short"]
        command += ["--dburi", f"postgresql+psycopg://ann@{server.postgres}/ropewalk", "test/dialect/test_suite.py"]
        command += ["-k", pattern] if pattern else []
        # A class is named after the dialect, too.
        named = lambda group, name: re.sub(r"_postgresql\+.*", "", group.rpartition(".test_suite.")[2]) + f".{name}"  # noqa: E731
        # The suite takes the first of a set in one test, which is another one from run to run.
        env = {"PYTHONPATH": str(HERE), "PYTHONHASHSEED": "0"}
        return foreign.pytest(python, command, tree, report, Path(place) / "results.xml", env, named)


def run(python, place, binary, version, pattern=None, write=False):
    """Runs the suite and prints what came of it; answers whether all is as known.txt says."""
    place.mkdir(parents=True, exist_ok=True)
    report = place / "sqlalchemy.log"
    tree = foreign.sources(python, place, "SQLAlchemy", version)
    found = outcomes(python, tree, binary, report, pattern)
    known = foreign.Known(HERE / "known.txt")
    print(f"SQLAlchemy {version}: all in {report}")
    good = known.judge(NAME, found)
    if write:
        known.write(found)
    return good


def main():
    import run as clients

    parser = foreign.arguments(__doc__, clients.TARGET)
    parser.add_argument("pattern", nargs="?")
    args = parser.parse_args()
    clients.PLACE.mkdir(parents=True, exist_ok=True)
    python = clients.environment()
    good = run(python, clients.PLACE, args.binary.resolve(), clients.pinned("SQLAlchemy"), args.pattern, args.write)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
