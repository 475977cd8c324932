"""What the suites of other projects have in common: their sources, what pytest says of each test, and the tests that are known to fail.

A `known.txt` beside a suite names each test that fails, with its reason: `NAME | REASON`. A run fails if another test fails, or if
one that is named passes.
"""

import argparse
import collections
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

#: Longest time of one test, seconds; only to end a hang.
PATIENCE = 60


def arguments(doc, target):
    """The options that all suites have: the server, and whether known.txt is written."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=target / "debug" / "ropewalk")
    parser.add_argument("--write", action="store_true")
    return parser


def sources(python, place, project, version, parts=None):
    """The unpacked source distribution of a project, or only those parts of it. Fetched once."""
    name = f"{project.lower()}-{version}"
    tree = place / f"{name}-tests"
    if not tree.exists():
        print(f"fetching the sources of {project} {version}", flush=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--no-binary", project, f"{project}=={version}", "--dest", place], check=True)
        unpacked = place / "unpacked"
        shutil.unpack_archive(place / f"{name}.tar.gz", unpacked)
        begun = tree.with_suffix(".new")
        shutil.rmtree(begun, ignore_errors=True)
        if parts is None:
            (unpacked / name).rename(begun)
        else:
            begun.mkdir()
            for part in parts:
                shutil.move(unpacked / name / part, begun / part)
        begun.rename(tree)
    return tree


def pytest(python, options, tree, report, results, env, named):
    """Runs pytest in `tree`, its output in `report`; gives {name: (outcome, message)}, a test called what `named` makes of its class
    and name."""
    command = [python, *options, f"--junitxml={results}"]
    with open(report, "w") as log:
        env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | env
        subprocess.run(command, cwd=tree, env=env, stdout=log, stderr=subprocess.STDOUT)
    if not Path(results).exists():
        sys.exit(f"the suite did not run to its end:\n{report.read_text()[-3000:]}")
    found = {}
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        name = named(case.get("classname"), case.get("name"))
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        if bad is not None:
            found[name] = ("failed", bad.get("message") or "")
        elif skipped is not None:
            found.setdefault(name, ("skipped", skipped.get("message") or ""))
        else:
            found.setdefault(name, ("passed", ""))
    return found


class Known:
    """A known.txt."""

    def __init__(self, path):
        self.path = path
        self.lines = path.read_text().splitlines()
        parts = (line.partition(" | ") for line in self.lines if line and not line.startswith("#"))
        self.reasons = {name.strip(): reason.strip() for name, _, reason in parts}

    def judge(self, name, found, uncounted=frozenset()):
        """Prints what failed or passed against what is known, and the line that is counted; answers whether all is as it says. What
        passes of the `uncounted` is no fault."""
        by = collections.Counter(outcome for outcome, _ in found.values())
        failed = [test for test, (outcome, _) in found.items() if outcome == "failed"]
        new = sorted(test for test in failed if test not in self.reasons)
        healed = sorted(test for test in self.reasons.keys() - uncounted if found.get(test, ("", ""))[0] == "passed")
        for test in new:
            print(f"FAILED {test}: {found[test][1].splitlines()[0][:200] if found[test][1] else ''}")
        for test in healed:
            print(f"passes, strike it from {self.path.name}: {test}")
        bad = len(new) + len(healed)
        word = "FAILED" if bad else "ok"
        print(f"{len(failed)} failed, of which {len(failed) - len(new)} are known")
        print(f"test result: {word}. {by['passed']} passed; {bad} failed; {by['skipped']} ignored; {name}", flush=True)
        return not bad

    def write(self, found, uncounted=frozenset()):
        """Writes it anew from a run: reasons stay, new lines have none, what passes goes, unless it is uncounted."""
        outcomes = {test: outcome for test, (outcome, _) in found.items()}
        kept = {test: reason for test, reason in self.reasons.items() if test in uncounted or outcomes.get(test) != "passed"}
        kept |= {test: self.reasons.get(test, "") for test, outcome in outcomes.items() if outcome == "failed"}
        head = [line for line in self.lines if line.startswith("#")]
        self.path.write_text("\n".join(head + [f"{test} | {reason}" for test, reason in sorted(kept.items())]) + "\n")
