"""Calls the checker of histories, a Go program over Porcupine in `porcupine/`. As a program, only compiles it."""

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "porcupine"
PLACE = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target")).resolve() / "clients"
#: Where Go's own packages install it.
INSTALLED = Path("/usr/local/go/bin/go")
#: Longest time to compile or to check, seconds; only to end a hang.
PATIENCE = 1200


def go():
    """The program `go`, or `None`."""
    return shutil.which("go") or (str(INSTALLED) if INSTALLED.exists() else None)


def unavailable():
    """The reason why histories are not checked on this machine, or `None`."""
    return None if go() else "histories are not checked for linearizability: there is no Go"


@functools.cache
def program():
    """The checker, compiled where it has changed."""
    PLACE.mkdir(parents=True, exist_ok=True)
    built = PLACE / "histories"
    environment = os.environ | {"GOCACHE": str(PLACE / "go-cache"), "GOFLAGS": "-mod=readonly -buildvcs=false"}
    subprocess.run([go(), "build", "-o", built, "."], cwd=SOURCES, env=environment, check=True, timeout=PATIENCE)
    return built


def check(history):
    """Checks operations as `porcupine/main.go` describes them. Returns its result."""
    lines = "".join(json.dumps(operation) + "\n" for operation in history)
    run = subprocess.run([program()], input=lines, capture_output=True, text=True, timeout=PATIENCE)
    if run.returncode != 0:
        raise RuntimeError(f"the checker of histories failed: {run.stderr}")
    return json.loads(run.stdout)


def problems(history):
    """Registers whose history is wrong or undecided, with their operations."""
    result = check(history)
    found = [f"the history of {name} is not linearizable:\n  " + "\n  ".join(lines) for name, lines in result["illegal"].items()]
    return found + [f"the history of {name} could not be decided in time" for name in result["undecided"]]


if __name__ == "__main__":
    print(unavailable() or f"compiled {program()}")
