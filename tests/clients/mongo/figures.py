#!/usr/bin/env python3
"""Operations per second over the MongoDB wire, by MongoDB's own drivers: pymongo with one thread, Rust with 1 and
32 tasks and YCSB's workloads, Go with 1 and 32 goroutines.

    figures.py --binary PATH [--seconds S] [--json FILE]

The server writes to the directory that TMPDIR names. Every write is on the disk when it is answered; beside the figures stands
how often a second this disk can be synced.
"""

import argparse
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import Server  # noqa: E402

HERE = Path(__file__).resolve().parent
#: Documents of the YCSB rows.
YCSB_DOCUMENTS = 100_000


def probe(seconds):
    """fdatasync after 4 KiB written over bytes that are there, times a second."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4 << 20))
        file.flush()
        os.fsync(file.fileno())
        block, n, begin = mmap.PAGESIZE * b"x", 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            os.pwrite(file.fileno(), block, n % 1000 * len(block))
            os.fdatasync(file.fileno())
            n += 1
        return n / (time.perf_counter() - begin)


def pymongo_rows(url, seconds):
    """One thread of pymongo with its defaults."""
    import pymongo

    with pymongo.MongoClient(url) as client:
        c = client.figures.c
        c.drop()

        def rate(work):
            n, begin = 0, time.perf_counter()
            while time.perf_counter() - begin < seconds:
                work(n)
                n += 1
            return n, n / (time.perf_counter() - begin)

        many, inserts = rate(lambda n: c.insert_one({"_id": n, "value": n, "data": "some test data"}))
        yield "pymongo insert_one 1", inserts
        many = min(many, 10_000)
        yield "pymongo find_one 1", rate(lambda n: c.find_one({"_id": n % many}))[1]
        yield "pymongo replace_one 1", rate(lambda n: c.replace_one({"_id": n % many}, {"value": n, "updated": True}))[1]
        begin = time.perf_counter()
        c.insert_many([{"_id": -n - 1, "value": n, "data": "some test data"} for n in range(50_000)])
        yield "pymongo insert_many 50000 (documents)", 50_000 / (time.perf_counter() - begin)


def rust_rows(url, seconds):
    """The Rust driver: single documents, and YCSB."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target")).resolve() / "clients" / "rust"
    env = os.environ | {"MONGO_URL": url, "CARGO_TARGET_DIR": str(target)}
    command = ["cargo", "run", "--quiet", "--locked", "--release", "--example", "figures", str(seconds), str(YCSB_DOCUMENTS)]
    run = subprocess.run(command, cwd=HERE / "rust", env=env, stdout=subprocess.PIPE, text=True, check=True)
    for name, workers, figure in re.findall(r"^FIGURE rust (\S+) (\d+) (\d+)", run.stdout, re.MULTILINE):
        yield f"rust {name} {workers}", float(figure)


def go_rows(url, seconds):
    """The Go driver, if there is a Go."""
    if not shutil.which("go"):
        print("there is no go: its rows are left out", file=sys.stderr)
        return
    env = os.environ | {"MONGO_URL": url, "MONGO_FIGURES": str(seconds)}
    command = ["go", "test", "-count=1", "-v", "-run", "TestFigures", "./..."]
    run = subprocess.run(command, cwd=HERE / "go", env=env, stdout=subprocess.PIPE, text=True, check=True)
    for name, workers, figure in re.findall(r"^FIGURE go (\S+) (\d+) (\d+)", run.stdout, re.MULTILINE):
        yield f"go {name} {workers}", float(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--quick", action="store_true", help="a second each")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.seconds = 1 if args.quick else args.seconds
    if "ROPEWALK_CLIENTS_PYTHON" not in os.environ:
        # pymongo lies in the virtual environment of the clients' tests.
        from run import environment

        python = str(environment())
        os.execve(python, [python, *sys.argv], os.environ | {"ROPEWALK_CLIENTS_PYTHON": python})
    rows = {"fdatasync probe": probe(min(args.seconds, 2))}
    # Each driver finds a server of its own: what one has left to be tidied up is not the next one's affair.
    for driver in (pymongo_rows, rust_rows, go_rows):
        with Server(args.binary, listen="off", options=["--mongo-listen", "127.0.0.1:0", "--log-level", "warn"]) as server:
            rows |= dict(driver(server.mongo + "/", args.seconds))
    for name, figure in rows.items():
        print(f"{name:<42} {figure:>12,.0f} /s")
    if args.json:
        args.json.write_text(json.dumps({name: round(figure) for name, figure in rows.items()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
