#!/usr/bin/env python3
"""A cluster of three nodes over three servers of NATS, under load: nodes and servers are killed and halted.

    run.py [--rounds N] [--seconds S] [--writers N] [--seed TEXT] [--binary PATH]

    --rounds     one trouble each; default 24
    --seconds    average duration of the load before each; default 2
    --writers    threads that write; default 4
    --seed       selects the moments and the nodes; default: a new one
    --binary     default: $CARGO_TARGET_DIR/debug/ropewalk, or target/debug/ropewalk

Needs the program nats-server: in ROPEWALK_NATS_SERVER, in the search path, or in the environment of the clients' tests, which is
made if it is not there. Prints the figures, and ends with 1 if an acknowledged write was lost or the nodes differ.
"""

import argparse
import os
import random
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--seed", default=f"{random.randrange(10**9)}")
    parser.add_argument("--binary", type=Path, default=TARGET / "debug" / "ropewalk")
    args = parser.parse_args()
    import trouble
    from nodes import nats_server

    if nats_server() is None:
        if "ROPEWALK_CLIENTS_PYTHON" in os.environ:
            print("SKIPPED: there is no nats-server; set ROPEWALK_NATS_SERVER to its path")
            return
        sys.path.insert(0, str(HERE.parent))
        from run import enter_environment

        enter_environment()
    print(f"seed {args.seed}", flush=True)
    report = trouble.run(args.binary, args.rounds, args.seconds, args.writers, args.seed)
    print(report)
    sys.exit(0 if report.is_good() else 1)


if __name__ == "__main__":
    main()
