#!/usr/bin/env python3
"""Runs the tests of clients and tools, others' and our own, against `ropewalk serve`. README.md in this folder lists them.

    run.py [GROUP ...] [--binary PATH] [--all]      default: all groups; $CARGO_TARGET_DIR/debug/ropewalk, or target/debug/ropewalk
    run.py --fetch                                  only downloads and compiles what the suites need

Groups: events, mongo, postgres, prometheus, ropewalk. They can run at the same time, after --fetch.

With --all also the Go driver, which takes a minute to compile, mongosh, which takes as long to download, and SQLAlchemy's own suite.

Prints one line `test result: ok. N passed; M failed; …` for each suite and ends with 0 if nothing failed.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

sys.dont_write_bytecode = True

from mongo import suite as pymongo_suite  # noqa: E402
from postgres import suite as sqlalchemy_suite  # noqa: E402
from servers import Server  # noqa: E402

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[1] / "target")).resolve()
PLACE = TARGET / "clients"
#: Longest time of one suite, seconds, beside what it is told to take; only to end a hang.
PATIENCE = 600 + float(os.environ.get("PROMETHEUS_SECONDS", 0))
#: How long random queries are asked, seconds, and the name of their seeds: each run asks the same ones.
RANDOM_SECONDS, RANDOM_SEED = 300, "gate"
#: The port that UmaDB's tests name.
ADDRESS = "127.0.0.1:50051"
#: Packages of npm: name of the suite, sources, place.
NODE = ("MongoDB's Node driver", "mongo/node", "node")
NODE_POSTGRES = ("node-postgres", "postgres/node", "node-postgres")
#: Packages of npm with a lockfile.
TYPESCRIPT = ("clients/typescript", "examples/order-service/typescript")
NPM_CI = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--silent"]
#: MongoDB's Rust driver: command, place, environment.
RUST = (
    ["cargo", "test", "--locked", "--test", "driver"], HERE / "mongo" / "rust", {"CARGO_TARGET_DIR": str(PLACE / "rust")},
)


def environment():
    """The interpreter of a virtual environment that holds what requirements.txt pins."""
    requirements = HERE / "requirements.txt"
    seen = f"{sys.version}\n{requirements.read_text()}".encode()
    home = PLACE / f"venv-{hashlib.sha256(seen).hexdigest()[:12]}"
    python = home / "bin" / "python"
    done = home / "done"
    if not done.exists():
        print(f"installing {requirements.name} into {home}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--requirement", requirements], check=True)
        done.touch()
    return python


def enter_environment():
    """Runs this program again in the virtual environment of the tests, which ROPEWALK_CLIENTS_PYTHON then names."""
    PLACE.mkdir(parents=True, exist_ok=True)
    python = str(environment())
    os.execve(python, [python, *sys.argv], os.environ | {"ROPEWALK_CLIENTS_PYTHON": python})


def pinned(package):
    """The version that requirements.txt has of a package."""
    return re.search(rf"^{re.escape(package)}==(.+)$", (HERE / "requirements.txt").read_text(), re.MULTILINE).group(1)


def umadb_sources(python):
    """The unpacked source distribution of the client, which has its tests."""
    version = pinned("umadb")
    tree = PLACE / f"umadb-{version}"
    if not tree.exists():
        print(f"fetching the sources of umadb {version}", flush=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        # Only the client's own sources: what builds it comes as it is.
        source = ["--no-binary", "umadb", f"umadb=={version}", "--dest", PLACE]
        subprocess.run([*pip, *source], check=True)
        shutil.unpack_archive(PLACE / f"umadb-{version}.tar.gz", PLACE / "unpacked")
        (PLACE / "unpacked" / f"umadb-{version}").rename(tree)
    return tree


def debian(package, program):
    """The directory of a program of a Debian package, which is unpacked, not installed: no service starts with it."""
    tree = PLACE / package
    found = next(iter(tree.glob(f"usr/bin/{program}")), None)
    if found is None:
        print(f"fetching {package} from Debian", flush=True)
        fetched = PLACE / f"{package}.fetched"
        shutil.rmtree(fetched, ignore_errors=True)
        fetched.mkdir()
        subprocess.run(["apt-get", "download", "-qq", package], cwd=fetched, check=True)
        for archive in fetched.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", archive, tree], check=True)
        found = tree / "usr" / "bin" / program
    return found.parent


def prometheus():
    """Where `prometheus` and `promtool` are: those that `./run bench mytsdb --peers` has built, else Debian's."""
    built = TARGET / "peers" / "prometheus"
    return built if (built / "prometheus").exists() else debian("prometheus", "prometheus")


def nats_server(python):
    """Links the server of NATS at a place without versions, which xtask passes to the tests of crates/cluster-nats."""
    place = PLACE / "nats-server"
    place.unlink(missing_ok=True)
    place.symlink_to(python.parent / "nats-server")


def stand_in(tree, binary):
    """Where some tests look for UmaDB's server, a script that starts ours with the same arguments."""
    script = tree / "target" / "debug" / "umadb"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(
        "#!/bin/sh\n"
        "# umadb --db-path PATH --listen ADDRESS\n"
        'exec "' + str(binary) + '" serve "$2" --grpc-listen "$4" --http-listen off\n'
    )
    script.chmod(0o755)


def suite(name, python, arguments, cwd, env, chance=None):
    """Runs one suite and prints its result in the form of cargo; answers whether it passed. A failure with the words `chance`
    is no server's fault: it is shown, and the suite runs once more."""
    print(f"\n==> {name}", flush=True)
    run = subprocess.run(
        [python, "-m", "unittest", "--verbose", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    print(run.stdout, flush=True)
    if chance and run.returncode != 0 and chance in run.stdout:
        print(f"once more, because of: {chance}", flush=True)
        return suite(name, python, arguments, cwd, env)
    ran = re.search(r"^Ran (\d+) tests?", run.stdout, re.MULTILINE)
    counts = {key: int(n) for key, n in re.findall(r"(failures|errors|skipped)=(\d+)", run.stdout)}
    bad = counts.get("failures", 0) + counts.get("errors", 0)
    if ran is None or (run.returncode != 0 and bad == 0):
        bad += 1  # it did not get as far as its own count
    skipped = counts.get("skipped", 0)
    good = max(int(ran.group(1)) - bad - skipped, 0) if ran else 0
    word = "FAILED" if bad else "ok"
    print(f"test result: {word}. {good} passed; {bad} failed; {skipped} ignored; {name}", flush=True)
    return not bad


def foreign(name, binary, option, cwd, good, command, env=lambda server: {}):
    """Runs the tests of a driver of another language against a server with the port `option`; `command` and `env` are made for
    that server, `good` finds how many passed in what they print."""
    print(f"\n==> {name}", flush=True)
    with Server(binary, listen="off", options=[option, "127.0.0.1:0"]) as server:
        run = subprocess.run(
            command(server), cwd=cwd, env=os.environ | env(server),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
        )
    passed = len(re.findall(good, run.stdout, re.MULTILINE))
    bad = int(run.returncode != 0 or passed == 0)
    if bad:
        print(run.stdout, flush=True)
    print(f"test result: {'FAILED' if bad else 'ok'}. {passed} passed; {bad} failed; 0 ignored; {name}", flush=True)
    return not bad


def other_driver(name, command, binary, cwd, good, env):
    """A MongoDB driver, which is told the address by its environment."""
    told = lambda server: env | {"MONGO_URL": server.mongo + "/"}
    return foreign(name, binary, "--mongo-listen", cwd, good, lambda server: command, told)


def has_npm(name):
    """Whether there is npm; a step without it is skipped, which is printed."""
    found = shutil.which("node") and shutil.which("npm")
    if not found:
        print(f"\n==> {name}: SKIPPED, there is no node and npm", flush=True)
    return bool(found)


def npm_place(name, source, place):
    """Copies a package to `place` and installs what it pins; `None`, said loudly, where there is no npm."""
    if not has_npm(name):
        return None
    place = PLACE / place
    place.mkdir(exist_ok=True)
    for file in (HERE / source).iterdir():
        shutil.copy(file, place)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=place, check=True)
    return place


def node_driver(binary):
    """The Node driver, in the version that its package.json pins."""
    place = npm_place(*NODE)
    if place is None:
        return True
    return other_driver(NODE[0], ["node", "--test", "test_driver.mjs"], binary, place, r"^(?:ok \d+|✔) ", {})


def shell(binary):
    """MongoDB's shell, in the version that its package.json pins: 150 MB of it."""
    name = "mongosh"
    place = npm_place(name, "mongo/shell", "shell")
    if place is None:
        return True
    # The shell takes its address as a word of its own.
    command = ["sh", "-c", 'node_modules/.bin/mongosh --quiet "$MONGO_URL" test_shell.js']
    return other_driver(name, command, binary, place, r"^ok ", {})


def go_driver(binary):
    """The Go driver, in the version that its go.mod pins."""
    name = "MongoDB's Go driver"
    if not shutil.which("go"):
        print(f"\n==> {name}: SKIPPED, there is no go", flush=True)
        return True
    command = ["go", "test", "-count=1", "-v", "./..."]
    cache = {"GOCACHE": str(PLACE / "go-cache"), "GOFLAGS": "-mod=readonly"}
    return other_driver(name, command, binary, HERE / "mongo" / "go", r"^--- PASS", cache)


def rust_driver(binary):
    """The Rust driver, in the version that its Cargo.toml pins, built beside ours."""
    command, place, built = RUST
    return other_driver("MongoDB's Rust driver", command, binary, place, r"^test \w+ \.\.\. ok", built)


def postgres_client(name, command, binary, cwd, good, url):
    """A PostgreSQL driver; `url` makes its argument of host, port and database."""
    return foreign(
        name, binary, "--postgres-listen", cwd, good, lambda server: [*command, url.format(server.postgres)]
    )


def node_postgres(binary):
    """node-postgres, in the version that its package.json pins."""
    place = npm_place(*NODE_POSTGRES)
    if place is None:
        return True
    url = "postgres://ann@{}/ropewalk"
    return postgres_client(NODE_POSTGRES[0], ["node", "test_driver.mjs"], binary, place, r"^(?:ok \d+|✔) ", url)


def typescript_place(package):
    """A copy of a package, so that the sources stay free of what npm and tsc write; at the same place, for the links between them."""
    place = PLACE / "typescript" / package
    shutil.copytree(
        HERE.parents[1] / package, place, dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("node_modules", "dist", "build"),
    )
    shutil.rmtree(place / "build", ignore_errors=True)
    return place


def typescript(binary):
    """Our TypeScript client and the example that uses it: compiled by tsc, then their tests."""
    name = "TypeScript client"
    if not has_npm(name):
        return True
    print(f"\n==> {name}", flush=True)
    counts, failed = {"pass": 0, "fail": 0, "skipped": 0}, False
    for package in TYPESCRIPT:
        place = typescript_place(package)
        # Its examples are compiled, too.
        (PLACE / "typescript" / "docs").mkdir(exist_ok=True)
        shutil.copy(HERE.parents[1] / "docs" / "clients.md", PLACE / "typescript" / "docs")
        for command in (NPM_CI, ["npm", "test"]):
            run = subprocess.run(
                command, cwd=place, env=os.environ | {"ROPEWALK_BIN": str(binary)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
            )
            for kind, count in re.findall(r"^(?:#|ℹ) (pass|fail|skipped) (\d+)", run.stdout, re.MULTILINE):
                counts[kind] += int(count)
            if run.returncode != 0:
                print(run.stdout, flush=True)
                failed = True
                break
    # Without a failed test it did not get as far as the tests.
    bad = counts["fail"] or int(failed or counts["pass"] == 0)
    word = "FAILED" if bad else "ok"
    print(f"test result: {word}. {counts['pass']} passed; {bad} failed; {counts['skipped']} ignored; {name}", flush=True)
    return not bad


def console_place():
    """A copy of the web console, so that the sources stay free of what npm writes. Packages that are there stay."""
    place = PLACE / "console"
    for entry in place.glob("*"):
        if entry.is_dir() and entry.name != "node_modules":
            shutil.rmtree(entry)
    shutil.copytree(
        HERE.parents[1] / "console", place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules", "test-results"),
    )
    return place


def console(binary):
    """The web console: types, ESLint, unit tests, size of the built files; its pages in Chromium, where there is one."""
    name = "web console"
    if not has_npm(name):
        return True
    print(f"\n==> {name}", flush=True)
    place = console_place()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
    commands = [NPM_CI, ["npm", "run", "check"]]
    if chromium:
        commands.append(["npm", "run", "e2e"])
    else:
        print("SKIPPED: its pages in a browser, there is no chromium", flush=True)
    passed, failed, bad = 0, 0, False
    for command in commands:
        run = subprocess.run(
            command, cwd=place, env=os.environ | {"ROPEWALK_BIN": str(binary), "CHROMIUM": chromium or "", "NO_COLOR": "1"},
            # A browser on two processors, next to other steps, takes minutes.
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * PATIENCE,
        )
        # Of Vitest `Tests  1 failed | 50 passed (51)`, of Playwright `25 passed (2.0m)`.
        passed += sum(int(count) for count in re.findall(r"^\s*(?:Tests\b.*?)?(\d+) passed \(", run.stdout, re.MULTILINE))
        failed += sum(int(count) for count in re.findall(r"^\s*(?:Tests\b.*?)?(\d+) failed\b", run.stdout, re.MULTILINE))
        if run.returncode != 0:
            print(run.stdout, flush=True)
            bad = True
            break
    # Without a failed test it did not get as far as the tests, or types, lint or size are wrong.
    failed = failed or int(bad or passed == 0)
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed; 0 ignored; {name}", flush=True)
    return not failed


def jdbc_place():
    """The directory with the JDBC driver; `None`, said loudly, where it cannot be run."""
    if not (shutil.which("javac") and shutil.which("mvn")):
        print("\n==> JDBC: SKIPPED, there is no JDK and Maven", flush=True)
        return None
    place = PLACE / "jdbc"
    place.mkdir(exist_ok=True)
    shutil.copy(HERE / "postgres" / "jdbc" / "pom.xml", place)
    if not list(place.glob("lib/postgresql-*.jar")):
        fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={place / 'lib'}"]
        subprocess.run(fetch, cwd=place, check=True)
    return place


def jdbc(binary):
    """PostgreSQL's JDBC driver, in the version that its pom.xml pins."""
    place = jdbc_place()
    if place is None:
        return True
    command = ["java", "-cp", str(place / "lib" / "*"), HERE / "postgres" / "jdbc" / "TestJdbc.java"]
    return postgres_client("JDBC", command, binary, place, r"^ok ", "jdbc:postgresql://{}/ropewalk")


#: Streams that end only when the client goes, which schemathesis takes for a hang.
ENDLESS = [
    "/v1/stores/{store}/subscribe", "/v1/changes", "/v1/stats/live", "/v1/databases/{database}/watch",
    "/v1/databases/{database}/collections/{collection}/watch",
]


def random_queries(python, binary):
    """The same random queries to PostgreSQL and to our server, for three minutes."""
    name = "random queries against PostgreSQL 15"
    print(f"\n==> {name}", flush=True)
    command = [python, HERE / "postgres" / "random_queries", "--binary", binary, "--seed", RANDOM_SEED, "--seconds", str(RANDOM_SECONDS)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    print(run.stdout, flush=True)
    bad, skipped = int(run.returncode != 0), int(run.stdout.startswith("SKIPPED"))
    word = "FAILED" if bad else "ok"
    print(f"test result: {word}. {1 - bad - skipped} passed; {bad} failed; {skipped} ignored; {name}", flush=True)
    return not bad


def openapi(python, binary):
    """Requests that the OpenAPI document allows or just not, made up by schemathesis; prints what it found."""
    name = "schemathesis over the OpenAPI document"
    print(f"\n==> {name}", flush=True)
    with Server(binary, http="127.0.0.1:0", token="schemathesis", options=["--dev"]) as server:
        command = [python.parent / "schemathesis", "run", f"{server.http}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {server.token}"]
        for path in ENDLESS:
            command += ["--exclude-path", path]
        # Rules between fields, such as `from` excluding `after`, are no part of a schema: a valid request may be refused.
        command += ["--exclude-checks", "positive_data_acceptance", "--suppress-health-check", "all"]
        command += ["--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--max-examples", "5"]
        command += ["--request-timeout", "30", "--no-color"]
        run = subprocess.run(
            command, cwd=PLACE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE
        )
    tested = re.search(r"^\s*Tested: (\d+)", run.stdout, re.MULTILINE)
    found = re.search(r"(\d+) found (\d+) unique failures", run.stdout)
    bad = int(found.group(2)) if found else int(run.returncode != 0)
    bad = max(bad, int(run.returncode != 0))
    good = max(int(tested.group(1)) - bad, 0) if tested else 0
    print(run.stdout if bad else run.stdout[run.stdout.rfind("SUMMARY"):], flush=True)
    word = "FAILED" if bad or not good else "ok"
    print(f"test result: {word}. {good} passed; {bad} failed; 0 ignored; {name}", flush=True)
    return word == "ok"


def python_client(python, binary):
    """The tests of our Python client, and of the example that uses it, from their sources."""
    root, env = HERE.parents[1], {"ROPEWALK_BIN": str(binary)}
    client = root / "clients" / "python"
    modules = [f"tests.{module.stem}" for module in sorted(client.glob("tests/test_*.py"))]
    good = suite("Python client", python, modules, client, env)
    example = root / "examples" / "order-service" / "python"
    return suite("order service in Python", python, ["test_orders"], example, env) and good


def demo(python, binary):
    """The demo with the Python clients, without which the step "demo" of `./run test` runs."""
    return story("demo with pymongo and umadb", python, binary, [], ["import pymongo", "import umadb"])


def cluster_demo(python, binary):
    """The demo of a cluster, which finds the server of NATS next to Python."""
    name = "demo of a cluster"
    if not ("ROPEWALK_NATS_SERVER" in os.environ or (python.parent / "nats-server").exists() or shutil.which("nats-server")):
        print(f"\n==> {name}: SKIPPED, there is no nats-server", flush=True)
        return True
    parts = ["import pymongo", "$ kill -9 ", "$ kill -s STOP ", "$ kill -s CONT ", "Every check held."]
    return story(name, python, binary, ["--cluster"], parts)


def story(name, python, binary, options, parts):
    """Runs a demo, which prints these parts, and leaves no files."""
    print(f"\n==> {name}", flush=True)
    command = [binary, "demo", "--once", "--python", python, *options]
    with tempfile.TemporaryDirectory() as temporary:
        run = subprocess.run(
            command, cwd=HERE, env=os.environ | {"TMPDIR": temporary},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
        )
        left = os.listdir(temporary)
    missing = [part for part in parts if part not in run.stdout]
    bad = int(run.returncode != 0 or bool(missing or left))
    if bad:
        print(f"{run.stdout}\nexit code {run.returncode}; missing: {missing}; files: {left}", flush=True)
    print(f"test result: {'FAILED' if bad else 'ok'}. {1 - bad} passed; {bad} failed; 0 ignored; {name}", flush=True)
    return not bad


def embedded_python(python):
    """The tests of the embedded Python package, those of the client over it, and of the example that uses it. The package is put
    together from the module that the build of the workspace has made."""
    root, place = HERE.parents[1], PLACE / "python-package"
    tests = root / "crates" / "python" / "tests"
    assembled = subprocess.run(
        [python, tests / "package.py", place], env=os.environ | {"CARGO_TARGET_DIR": str(TARGET)}, capture_output=True, text=True
    )
    if assembled.returncode != 0:
        print(f"{assembled.stderr}\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; embedded Python", flush=True)
        return False
    env = {"PYTHONPATH": str(place)}
    modules = sorted(module.stem for module in tests.glob("test_*.py"))
    results = [suite("embedded Python", python, modules, tests, env)]
    both = [f"tests.test_{name}" for name in ("aio", "dbapi", "documents", "events", "groups", "sql", "transactions")]
    results.append(suite("Python client over the embedded database", python, both, place, env | {"ROPEWALK_EMBEDDED": "1"}))
    example = root / "examples" / "order-service" / "python-embedded"
    results.append(suite("order service in Python, embedded", python, ["test_orders"], example, env))
    return all(results)


def own(binary):
    """The environment of the suites in this folder."""
    return {"ROPEWALK_BINARY": str(binary)}


def events(python, binary, everything):
    """Clients of UmaDB."""
    tree = umadb_sources(python)
    stand_in(tree, binary)
    tests = tree / "umadb-python"
    with Server(binary, ADDRESS):
        names = [f"tests.test_umadb.{case}" for case in ("TestBasicUsage", "TestUmaDbClient")]
        yield suite("UmaDB's Python tests", python, names, tests, {"TEST_BENCHMARK_NUM_ITERS": "1"})
    names = ["tests.test_umadb.TestHealthCheckServerShutdown"]
    # Of a server that is killed the kernel resets connections on which something lay unread, and closes the others: the test
    # that kills it expects the latter.
    killed = "ConnectionReset"
    yield suite("UmaDB's Python tests that start a server", python, names, tests, {}, killed)
    yield suite("recorder tests of eventsourcing", python, ["test_recorders"], HERE, own(binary))


def mongo(python, binary, everything):
    """Clients of MongoDB."""
    yield suite("pymongo", python, ["test_pymongo"], HERE / "mongo", own(binary))
    yield suite("an application on MongoEngine", python, ["test_mongoengine"], HERE / "mongo", own(binary))
    print("\n==> pymongo's own tests", flush=True)
    yield pymongo_suite.run(python, PLACE, binary, pinned("pymongo"), pymongo_suite.QUICK)
    yield node_driver(binary)
    yield rust_driver(binary)
    if everything:
        yield go_driver(binary)
        yield shell(binary)


def postgres(python, binary, everything):
    """Clients of PostgreSQL, and PostgreSQL itself."""
    place = HERE / "postgres"
    yield suite("psycopg", python, ["test_drivers"], place, own(binary))
    yield suite("psycopg and psql over TLS", python, ["test_tls"], place, own(binary))
    yield suite("SQLAlchemy, asyncpg", python, ["test_orm"], place, own(binary))
    if everything:
        print(f"\n==> {sqlalchemy_suite.NAME}", flush=True)
        yield sqlalchemy_suite.run(python, PLACE, binary, pinned("SQLAlchemy"))
    yield node_postgres(binary)
    yield jdbc(binary)
    yield random_queries(python, binary)
    yield suite("psql, pg_dump", python, ["test_programs"], place, own(binary))
    yield suite("psycopg, pgbench", python, ["test_wire"], place, own(binary))


def monitoring(python, binary, everything):
    """Prometheus, and clients that send samples."""
    place = HERE / "prometheus"
    try:
        real = {"PROMETHEUS": str(prometheus())} | own(binary)
        yield suite("Prometheus and promtool", python, ["test_prometheus"], place, real)
        yield suite("Prometheus' language", python, ["test_language"], place, real)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"test result: ok. 0 passed; 0 failed; 1 ignored; Prometheus and promtool SKIPPED: {error}", flush=True)
    yield suite("OpenTelemetry's SDK", python, ["test_otlp"], place, own(binary))
    yield suite("pyarrow's Flight client", python, ["test_flight"], place, own(binary))


def ours(python, binary, everything):
    """Our clients and programs, and the protocols together."""
    yield typescript(binary)
    yield console(binary)
    yield suite("a person at the prompt of ropewalk sql", python, ["test_prompt"], HERE / "terminal", own(binary))
    yield python_client(python, binary)
    yield suite("files of deploy/", python, ["test_compose"], HERE / "cluster", own(binary))
    yield suite("bank and audit over every protocol", python, ["test_audit"], HERE / "audit", own(binary))
    yield suite("checker of histories", python, ["test_checker"], HERE / "cluster", own(binary))
    yield suite("cluster of three nodes", python, ["test_cluster", "test_operations"], HERE / "cluster", own(binary))
    yield embedded_python(python)
    yield openapi(python, binary)
    yield demo(python, binary)
    yield cluster_demo(python, binary)


GROUPS = {"events": events, "mongo": mongo, "postgres": postgres, "prometheus": monitoring, "ropewalk": ours}


def fetch(python):
    """Downloads and compiles what the suites of all groups need, which `./run test` does while it compiles the server. A suite
    whose part fails here tries it again, and reports it."""
    command, place, built = RUST
    npm = bool(shutil.which("node") and shutil.which("npm"))
    parts = [
        lambda: nats_server(python),
        lambda: subprocess.run([python, HERE / "cluster" / "linearizable.py"], check=True),
        lambda: umadb_sources(python),
        lambda: pymongo_suite.sources(python, PLACE, pinned("pymongo")),
        prometheus,
        lambda: [npm_place(*package) for package in (NODE, NODE_POSTGRES)],
        lambda: [subprocess.run(NPM_CI, cwd=typescript_place(package), check=True) for package in TYPESCRIPT if npm],
        lambda: npm and subprocess.run(NPM_CI, cwd=console_place(), check=True),
        jdbc_place,
        lambda: subprocess.run([*command, "--no-run"], cwd=place, env=os.environ | built, check=True),
    ]
    for part in parts:
        try:
            part()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"not fetched: {error}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--binary", type=Path, default=TARGET / "debug" / "ropewalk")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--fetch", action="store_true")
    args = parser.parse_args()
    if unknown := set(args.groups) - GROUPS.keys():
        parser.error(f"no group {', '.join(sorted(unknown))}")
    binary = args.binary.resolve()
    if not (binary.exists() or args.fetch):
        sys.exit(f"{binary} is not there: cargo build -p ropewalk-cli")
    PLACE.mkdir(parents=True, exist_ok=True)
    python = environment()
    if args.fetch:
        fetch(python)
        return
    results, begun = [], time.monotonic()
    for group in args.groups or GROUPS:
        for good in GROUPS[group](python, binary, args.all):
            results.append(good)
            print(f"--- {time.monotonic() - begun:.0f} s", flush=True)
            begun = time.monotonic()
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
