#!/usr/bin/env python3
"""SQLAlchemy's compliance suite of dialects, unmodified, from its source distribution, against `ropewalk serve`.

    suite.py [PATTERN]          tests whose names have the pattern, as `pytest -k` takes it
    --binary PATH               default: $CARGO_TARGET_DIR/debug/ropewalk, or target/debug/ropewalk
    --write                     write known.txt anew from this run: reasons stay, new lines have none

`known.txt` names each test that fails, with its reason. The run fails if another one does, or if one that is named passes.
"""

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from servers import Server  # noqa: E402

KNOWN = HERE / "known.txt"
#: Longest time of one test, seconds; only to end a hang.
PATIENCE = 60
NAME = "SQLAlchemy's compliance suite"


def sources(python, place, version):
    """The unpacked source distribution. `python -s` makes its tests import the installed library, not the one in it."""
    tree = place / f"sqlalchemy-{version}-tests"
    if not tree.exists():
        print(f"fetching the sources of SQLAlchemy {version}", flush=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--no-binary", "SQLAlchemy", f"SQLAlchemy=={version}", "--dest", place], check=True)
        unpacked = place / "unpacked"
        shutil.unpack_archive(place / f"sqlalchemy-{version}.tar.gz", unpacked)
        (unpacked / f"sqlalchemy-{version}").rename(tree)
    return tree


def known():
    """What is known to fail, and why."""
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    parts = (line.partition(" | ") for line in lines if line and not line.startswith("#"))
    return {name.strip(): reason.strip() for name, _, reason in parts}


def outcomes(python, tree, binary, report, pattern):
    """Runs the suite on one server; gives the outcome and message of each test."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-sqlalchemy-") as place, Server(
        binary, listen="off", options=["--postgres-listen", "127.0.0.1:0", "--log-level", "warn"]
    ) as server:
        results = Path(place) / "results.xml"
        command = [python, "-s", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "suite_plugin", "-W", "ignore"]
        command += ["--timeout", str(PATIENCE), "--tb", "short", f"--junitxml={results}"]
        command += ["--dburi", f"postgresql+psycopg://ann@{server.postgres}/ropewalk", "test/dialect/test_suite.py"]
        command += ["-k", pattern] if pattern else []
        with open(report, "w") as log:
            env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(HERE)}
            subprocess.run(command, cwd=tree, env=env, stdout=log, stderr=subprocess.STDOUT)
        if not results.exists():
            sys.exit(f"the suite did not run to its end:\n{report.read_text()[-3000:]}")
        found = {}
        for case in xml.etree.ElementTree.parse(results).iter("testcase"):
            # A class is named after the dialect, too.
            group = re.sub(r"_postgresql\+.*", "", case.get("classname").rpartition(".test_suite.")[2])
            name = f"{group}.{case.get('name')}"
            bad = case.find("failure") if case.find("failure") is not None else case.find("error")
            skipped = case.find("skipped")
            if bad is not None:
                found[name] = ("failed", bad.get("message") or "")
            elif skipped is not None:
                found.setdefault(name, ("skipped", skipped.get("message") or ""))
            else:
                found.setdefault(name, ("passed", ""))
        return found


def run(python, place, binary, version, pattern=None, write=False):
    """Runs the suite and prints what came of it; answers whether all is as known.txt says."""
    place.mkdir(parents=True, exist_ok=True)
    report = place / "sqlalchemy.log"
    found = outcomes(python, sources(python, place, version), binary, report, pattern)
    reasons = known()
    by = collections.Counter(outcome for outcome, _ in found.values())
    failed = sorted(name for name, (outcome, _) in found.items() if outcome == "failed")
    new = [name for name in failed if name not in reasons]
    healed = sorted(name for name in reasons if found.get(name, ("", ""))[0] == "passed")
    for name in new:
        print(f"FAILED {name}: {found[name][1].splitlines()[0][:200] if found[name][1] else ''}")
    for name in healed:
        print(f"passes, strike it from known.txt: {name}")
    if write:
        head = [line for line in KNOWN.read_text().splitlines() if line.startswith("#")]
        kept = {name: reason for name, reason in reasons.items() if name not in healed} | {name: reasons.get(name, "") for name in failed}
        KNOWN.write_text("\n".join(head + [f"{name} | {reason}" for name, reason in sorted(kept.items())]) + "\n")
    print(f"SQLAlchemy {version}: {by['passed']} passed, {by['failed']} failed of which {len(failed) - len(new)} are known, "
          f"{by['skipped']} skipped; all in {report}")
    bad = len(new) + len(healed)
    word = "FAILED" if bad else "ok"
    print(f"test result: {word}. {by['passed']} passed; {bad} failed; {by['skipped']} ignored; {NAME}", flush=True)
    return not bad


def main():
    import run as clients

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=clients.TARGET / "debug" / "ropewalk")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("pattern", nargs="?")
    args = parser.parse_args()
    clients.PLACE.mkdir(parents=True, exist_ok=True)
    python = clients.environment()
    good = run(python, clients.PLACE, args.binary.resolve(), clients.pinned("SQLAlchemy"), args.pattern, args.write)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
