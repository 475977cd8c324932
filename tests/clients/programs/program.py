"""What the tests of whole programs share: installing a program from its registry, running it against a server, visiting its pages.

`$ROPEWALK_PROGRAMS` is the directory of installed programs and of screenshots. A program that cannot be installed here is
skipped, and the message names the cause.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import results  # noqa: E402
from foreign import Known  # noqa: E402
from servers import PATIENCE, Server, binary  # noqa: E402

HERE = Path(__file__).resolve().parent
PLACE = Path(os.environ["ROPEWALK_PROGRAMS"])
#: Longest time of an installation and of a program's first start with its migrations, seconds; only to end a hang.
LONG = 1200


def directory(name):
    place = PLACE / name
    place.mkdir(parents=True, exist_ok=True)
    return place


def needed(*programs):
    """Skips the test if one of these programs is not installed."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        raise unittest.SkipTest(f"there is no {' and no '.join(missing)}")


def install(name, command, cwd, env=None):
    """Runs an installation; skips the test if the registry does not have the packages."""
    log = cwd / "install.log"
    with open(log, "w") as output:
        run = subprocess.run(
            command, cwd=cwd, env=os.environ | (env or {}), stdout=output, stderr=subprocess.STDOUT, timeout=LONG
        )
    if run.returncode != 0:
        raise unittest.SkipTest(f"{name} cannot be installed: {' '.join(log.read_text().split())[-300:]}")


def npm(name, newer_node=False):
    """The directory with the packages that NAME/package.json pins, and the program `node` that runs them. With `newer_node` it is the
    one that package.json pins."""
    needed("node", "npm")
    place, manifest = directory(name), HERE / name / "package.json"
    done = place / "done"
    if not done.exists() or done.read_text() != manifest.read_text():
        shutil.copy(manifest, place)
        # Peer dependencies of programs contradict one another.
        install(name, ["npm", "install", "--no-audit", "--no-fund", "--legacy-peer-deps"], place)
        shutil.copy(manifest, done)
    return place, str(place / "node_modules" / ".bin" / "node") if newer_node else "node"


def go(module, version, program):
    """A program of the Go module proxy, compiled here."""
    needed("go")
    place = directory(program)
    if not (place / version / program).exists():
        env = {"GOBIN": str(place / version), "GOCACHE": str(PLACE / "go-cache"), "GOFLAGS": "-p=1"}
        install(program, ["go", "install", f"{module}@{version}"], place, env)
    return str(place / version / program)


def pip(name):
    """The programs of a virtual environment with what NAME/requirements.txt pins."""
    place, requirements = directory(name), HERE / name / "requirements.txt"
    done = place / "done"
    if not done.exists() or done.read_text() != requirements.read_text():
        venv.create(place, with_pip=True, clear=True)
        command = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        install(name, [*map(str, command), "--requirement", str(requirements)], place)
        shutil.copy(requirements, done)
    return place / "bin"


def request(method, url, body=None, headers=None):
    """The status and the decoded body of an HTTP request."""
    data = json.dumps(body).encode() if body is not None else None
    asked = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"} | (headers or {}))
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE) as response:
            status, text = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    try:
        return status, json.loads(text) if text else None
    except ValueError:
        return status, text.decode(errors="replace")


class Running:
    """A started program, with a directory of its own and its output in a file."""

    def __init__(self, name, command, env, url):
        self._directory = tempfile.TemporaryDirectory(prefix=f"ropewalk-{name}-")
        self.place = Path(self._directory.name)
        self._log = open(self.place / "log", "w+")
        self._process = subprocess.Popen(
            command, cwd=self.place, env=os.environ | env, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )
        end = time.monotonic() + LONG
        while True:
            with contextlib.suppress(OSError):
                if request("GET", url)[0] < 500:
                    return
            if self._process.poll() is not None or time.monotonic() > end:
                output = self.output()
                self.stop()
                raise AssertionError(f"{name} does not start:\n{output[-6000:]}")
            time.sleep(0.5)

    def output(self):
        self._log.flush()
        return (self.place / "log").read_text(errors="replace")

    def stop(self):
        """Ends the program and the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 15)
        try:
            self._process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._log.close()
        self._directory.cleanup()


def free_port():
    """A port that is free now."""
    import socket

    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


class ProgramTest(unittest.TestCase):
    """A server for the tests of a class, and the program that `start` starts on it.

    A class defines `prepare`, which installs the program or skips, and `start`, which returns a `Running`. A program that known.txt
    names is skipped with its reason if it stops for that reason, and fails if it starts.

    What is found is recorded in results.json, unless a test fails or another database is measured. For that a class has a `title`
    with the version, a `protocol`, and a text on what is `measured`."""

    @classmethod
    def setUpClass(cls):
        cls.passed = cls.skipped = cls.failed = 0
        cls.prepare()
        cls.port = free_port()
        cls.url = f"http://127.0.0.1:{cls.port}"
        cls.server = Server(binary(), options=["--postgres-listen", "127.0.0.1:0", "--mongo-listen", "127.0.0.1:0"])
        # For the other database, to see whether a failure is the program's.
        cls.postgres = os.environ.get("PROGRAMS_POSTGRES") or f"ann@{cls.server.postgres}/ropewalk"
        name = cls.__name__.lower()
        reason = None if "PROGRAMS_POSTGRES" in os.environ else Known(HERE / "known.txt").reasons.get(name)
        try:
            cls.program = cls.start()
        except BaseException as error:
            cls.server.stop()
            if reason and isinstance(error, AssertionError):
                # Another obstacle than the known one fails.
                if reason.split("`")[1] not in str(error):
                    raise
                cls.record(outcome="stops", reason=reason)
                raise unittest.SkipTest(f"known: {reason}") from error
            raise
        if reason:
            cls.tearDownClass()
            raise AssertionError(f"{name} starts, strike it from known.txt: {reason}")

    @classmethod
    def tearDownClass(cls):
        cls.program.stop()
        assert cls.server.stop()
        if cls.passed and not cls.failed:
            cls.record(outcome="works", passed=cls.passed, skipped=cls.skipped)

    @classmethod
    def record(cls, **found):
        if "PROGRAMS_POSTGRES" not in os.environ:
            values = {"title": cls.title, "protocol": cls.protocol, "measured": cls.measured}
            results.record("programs", cls.__name__.lower(), values | found)

    def run(self, result=None):
        """Counts what came of the test."""
        result = result if result is not None else self.defaultTestResult()
        bad, skipped = len(result.failures) + len(result.errors), len(result.skipped)
        super().run(result)
        cls = type(self)
        if len(result.failures) + len(result.errors) > bad:
            cls.failed += 1
        elif len(result.skipped) > skipped:
            cls.skipped += 1
        else:
            cls.passed += 1
        return result

    @contextlib.contextmanager
    def page(self, name):
        """A page of Chromium; afterwards a screenshot is in `$ROPEWALK_PROGRAMS/screenshots/NAME.png`, also of a failed visit."""
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
        if not chromium:
            self.skipTest("there is no chromium-headless-shell")
        from playwright.sync_api import sync_playwright

        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 860}, locale="en-US")
            page.set_default_timeout(PATIENCE * 1000)
            shot = directory("screenshots") / f"{name}.png"
            try:
                yield page
            finally:
                page.screenshot(path=shot)
                print(f"screenshot: {shot}", flush=True)
                browser.close()
