#!/usr/bin/env python3
"""Bank and audit: transfers over all four models by every protocol at once, kill -9, backup and restore.

    run.py [--rounds N] [--seconds S] [--threads N] [--complete-every N] [--binary PATH]

    --rounds     kills of the server, and as many with cut connections; default 5
    --seconds    average duration of a round; default 2
    --threads    writers of each protocol; default 1
    --complete-every
                 rounds after which everything is audited instead of what is new; default 10
    --binary     default: $CARGO_TARGET_DIR/debug/ropewalk, or target/debug/ropewalk

Prints the figures, and ends with 1 after a disagreement.
"""

import argparse
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--complete-every", type=int, default=10)
    parser.add_argument("--binary", type=Path, default=TARGET / "debug" / "ropewalk")
    args = parser.parse_args()
    if "ROPEWALK_CLIENTS_PYTHON" not in os.environ:
        # The drivers are in the virtual environment of the clients' tests.
        sys.path.insert(0, str(HERE.parent))
        from run import enter_environment

        enter_environment()
    sys.path.insert(0, str(ROOT / "clients" / "python"))
    import repetition
    import workload

    reports = [
        ("bank and audit", workload.run(args.binary, args.rounds, args.seconds, args.threads, args.complete_every)),
        ("repeated requests", repetition.run(args.binary, args.rounds, args.seconds)),
    ]
    for name, report in reports:
        print(f"{name}\n{report}\n", flush=True)
    sys.exit(0 if all(report.is_good() for _, report in reports) else 1)


if __name__ == "__main__":
    main()
