#!/usr/bin/env python3
"""pymongo's own tests, unmodified, from its source distribution, against `ropewalk serve`.

    suite.py                    the modules of `./run test`, under two minutes
    suite.py --all              all modules that a MongoDB 7.0 replica set of one member would run
    suite.py MODULE...          these, such as test_collection
    --binary PATH               default: $CARGO_TARGET_DIR/debug/ropewalk, or target/debug/ropewalk
    --skipped                   list what was skipped, by reason
    --write                     write known.txt anew from this run: reasons stay, new lines have none

`known.txt` names each test that fails, with its reason. The run fails if another one does, or if one that is named passes; those
that fail with any server, MongoDB's included, where they are run, are not counted at all. Ends with the share of passed ones.
"""

import collections
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import foreign  # noqa: E402
from servers import Server  # noqa: E402

#: What reasons say of tests that no server of one member, in a place like this, would pass.
ANY_SERVER = ("fails with any server", "fails with MongoDB, too")
#: Those of `./run test`.
QUICK = [
    "test_collection", "test_crud_unified", "test_transactions", "test_retryable_writes_unified", "test_bulk",
    "test_collection_management", "test_run_command", "test_sessions_unified",
]
#: With those, all that need a server and what it can be: not TLS, several members, mongos, Atlas, encryption.
ALL = QUICK + [
    "test_change_stream", "test_client", "test_client_bulk_write", "test_collation", "test_command_logging",
    "test_command_monitoring", "test_comment", "test_common", "test_connection_logging", "test_create_entities",
    "test_csot", "test_cursor", "test_custom_types", "test_database", "test_dbref", "test_discovery_and_monitoring",
    "test_examples", "test_grid_file", "test_gridfs", "test_gridfs_bucket", "test_gridfs_spec",
    "test_heartbeat_monitoring", "test_index_management", "test_json_util_integration", "test_load_balancer",
    "test_logger", "test_max_staleness", "test_monitor", "test_monitoring", "test_operations", "test_pooling",
    "test_raw_bson", "test_read_concern", "test_read_preferences", "test_read_write_concern_spec", "test_retryable_reads",
    "test_retryable_reads_unified", "test_retryable_writes", "test_sdam_monitoring_spec", "test_server_selection",
    "test_server_selection_in_window", "test_server_selection_logging", "test_session", "test_sessions_unified",
    "test_streaming_protocol", "test_threads", "test_transactions_unified", "test_unified_format", "test_versioned_api",
    "test_versioned_api_integration", "test_auth", "test_connections_survive_primary_stepdown_spec",
]


def outcomes(python, tree, modules, binary, report):
    """Runs the modules on one server; gives the outcome and message of each test."""
    options = ["--mongo-listen", "127.0.0.1:0", "--mongo-test-commands", "--log-level", "warn"]
    with tempfile.TemporaryDirectory(prefix="ropewalk-pymongo-") as place, Server(
        binary, listen="off", options=options
    ) as server:
        command = ["-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", "-W", "ignore"]
        command += ["--timeout", str(foreign.PATIENCE), "--tb", "short", "-o", "addopts="]
        command += [f"test/{module}.py" for module in modules]
        env = {"DB_IP": "127.0.0.1", "DB_PORT": server.mongo.rpartition(":")[2]}
        named = lambda group, name: f"{group.removeprefix('test.')}.{name}"  # noqa: E731
        return foreign.pytest(python, command, tree, report, Path(place) / "results.xml", env, named)


def sources(python, place, version):
    """The tests of pymongo, without the package: nothing lies there that would be imported in place of the installed one."""
    return foreign.sources(python, place, "pymongo", version, ["test"])


def run(python, place, binary, version, modules, skipped=False, write=False):
    """Runs the modules and prints what came of them; answers whether all is as known.txt says."""
    place.mkdir(parents=True, exist_ok=True)
    tree = sources(python, place, version)
    modules = [module for module in dict.fromkeys(modules) if (tree / "test" / f"{module}.py").exists()]
    report = place / "pymongo.log"
    found = outcomes(python, tree, modules, binary, report)
    known = foreign.Known(HERE / "known.txt")
    everywhere = {name for name, reason in known.reasons.items() if any(words in reason for words in ANY_SERVER)}
    per_module = collections.defaultdict(collections.Counter)
    for name, (outcome, _) in found.items():
        per_module[name.partition(".")[0]][outcome] += 1
    for module, counts in sorted(per_module.items()):
        print(f"{module:<45} {counts['passed']:>5} passed {counts['failed']:>4} failed {counts['skipped']:>4} skipped")
    if skipped:
        why = collections.Counter(message for outcome, message in found.values() if outcome == "skipped")
        for message, count in why.most_common():
            print(f"{count:>5} skipped: {message}")
    by = collections.Counter(outcome for outcome, _ in found.values())
    uncounted = sum(found[name][0] == "failed" for name in everywhere.intersection(found))
    ran = by["passed"] + by["failed"] - uncounted
    print(f"pymongo {version}: {by['passed']} of {ran} that ran passed, {100 * by['passed'] / max(ran, 1):.1f} %; "
          f"{uncounted} that fail everywhere are not counted; all in {report}")
    good = known.judge("pymongo's own tests", found, everywhere)
    if write:
        known.write(found, everywhere)
    return good


def main():
    import run as clients

    parser = foreign.arguments(__doc__, clients.TARGET)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--skipped", action="store_true")
    parser.add_argument("modules", nargs="*")
    args = parser.parse_args()
    python = clients.environment()
    modules = args.modules or (ALL if args.all else QUICK)
    good = run(
        python, clients.PLACE, args.binary.resolve(), clients.pinned("pymongo"), modules, args.skipped, args.write
    )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
