#!/usr/bin/env python3
"""A cluster of three nodes over a log service, under load, with faults of its processes, its network and its machines.

    run.py [--rounds N] [--seconds S] [--writers N] [--seed TEXT] [--faults KIND,KIND] [--log SERVICE] [--binary PATH]

    --rounds     a fault each; default 24
    --seconds    average duration of the load before each; default 2
    --writers    threads that write, in addition to those of the registers; default 4
    --seed       selects the faults, the moments and the nodes; default: a new one
    --faults     processes, partitions, power; default: those that this machine can do, all in one cluster
    --log        nats (three servers) or postgres (a primary and its standby, which is promoted); default nats
    --binary     default: $CARGO_TARGET_DIR/debug/ropewalk, or target/debug/ropewalk

Writers send events, documents and rows to all nodes, and other clients read, write and compare-and-set registers. At the end, each
acknowledged write must be there once, all nodes must be equal, and the history of each register must be linearizable, which the Go
module Porcupine checks. Prints the figures, and ends with 1 after a loss or a violation.

Partitions need root and `ip`, power cuts root and loop devices, the check of histories Go. nats-server is taken from
ROPEWALK_NATS_SERVER, from the search path, or from the environment of the clients' tests, which is made if it is not there.
"""

import argparse
import os
import random
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
KINDS = ("processes", "partitions", "power")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target"))


def with_nats():
    """Runs this program again where nats-server is, unless it is here. Returns whether it is."""
    from nats_log import nats_server

    if nats_server() is None and "ROPEWALK_CLIENTS_PYTHON" not in os.environ:
        sys.path.insert(0, str(HERE.parent))
        from run import enter_environment

        enter_environment()
    return nats_server() is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--seed", default=f"{random.randrange(10**9)}")
    parser.add_argument("--faults", type=lambda text: text.split(","), default=KINDS)
    parser.add_argument("--log", choices=("nats", "postgres"), default="nats")
    parser.add_argument("--binary", type=Path, default=TARGET / "debug" / "ropewalk")
    args = parser.parse_args()
    import postgres_log
    import trouble
    from faults import FAULTS
    from nats_log import Nats
    from sites import unavailable

    if unknown := set(args.faults) - set(KINDS):
        parser.error(f"no faults {', '.join(sorted(unknown))}")
    if args.log == "nats" and not with_nats():
        print("SKIPPED: there is no nats-server; set ROPEWALK_NATS_SERVER to its path")
        return
    if args.log == "postgres" and (reason := postgres_log.unavailable()):
        print(f"SKIPPED: {reason}")
        return
    missing = unavailable()
    kinds = [kind for kind in args.faults if kind not in missing]
    for kind, reason in missing.items():
        print(f"SKIPPED {kind}: {reason}")
    chosen = [fault for fault in FAULTS if fault.kind in kinds or fault.kind == args.log]
    print(f"seed {args.seed}; faults: {', '.join(kinds)}", flush=True)
    report = trouble.run(
        args.binary,
        trouble.order(chosen, args.rounds, args.seed),
        args.seconds,
        args.writers,
        args.seed,
        show=lambda line: print(line, flush=True),
        service=Nats if args.log == "nats" else postgres_log.Postgres,
    )
    print(report)
    sys.exit(0 if report.is_good() else 1)


if __name__ == "__main__":
    main()
