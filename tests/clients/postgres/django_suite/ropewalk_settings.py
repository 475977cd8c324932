"""Settings of Django's own suite: its PostgreSQL backend, unmodified, over two databases, and a runner that records the outcome of
each test. `suite.py` sets the variables of the environment."""

import json
import os
import signal

from django.test.runner import DiscoverRunner
from django.test.utils import iter_test_cases

#: Longest time of one test, seconds; only to end a hang.
PATIENCE = int(os.environ["DJANGO_TEST_SECONDS"])


def _database(place):
    """A database of the form `host port name test-name`. Its test database has the same name where a server has one database."""
    host, port, name, test_name = place.split(" ")
    options = {"options": "-c default_transaction_isolation=read\\ committed"}
    return {
        "ENGINE": "django.db.backends.postgresql", "HOST": host, "PORT": port, "USER": "ann", "NAME": name,
        "TEST": {"NAME": test_name}, "OPTIONS": options,
    }


_default, _other = os.environ["DJANGO_DATABASES"].split(",")
DATABASES = {"default": _database(_default), "other": _database(_other)}
SECRET_KEY = "django_tests_secret_key"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "ropewalk_settings.Recorder"


def _expired(*_):
    raise TimeoutError(f"the test takes longer than {PATIENCE} s")


class _Outcomes:
    """What happened to each test, one line of JSON each."""

    file = None

    @classmethod
    def note(cls, name, outcome, message=""):
        cls.file.write(json.dumps([name, outcome, message]) + "\n")
        cls.file.flush()


def _recording(base):
    """The class of results `base`, which also records."""

    class Recording(base):
        def _said(self, error):
            kind, value, _ = error
            return f"{kind.__module__}.{kind.__qualname__}: {value}"

        def startTest(self, test):
            super().startTest(test)
            signal.alarm(PATIENCE)

        def stopTest(self, test):
            signal.alarm(0)
            super().stopTest(test)

        def addSuccess(self, test):
            _Outcomes.note(test.id(), "passed")
            super().addSuccess(test)

        def addFailure(self, test, err):
            _Outcomes.note(test.id(), "failed", self._said(err))
            super().addFailure(test, err)

        def addError(self, test, err):
            _Outcomes.note(test.id(), "failed", self._said(err))
            super().addError(test, err)

        def addSubTest(self, test, subtest, err):
            if err is not None:
                _Outcomes.note(test.id(), "failed", self._said(err))
            super().addSubTest(test, subtest, err)

        def addSkip(self, test, reason):
            _Outcomes.note(test.id(), "skipped", reason)
            super().addSkip(test, reason)

        def addExpectedFailure(self, test, err):
            _Outcomes.note(test.id(), "passed")
            super().addExpectedFailure(test, err)

        def addUnexpectedSuccess(self, test):
            _Outcomes.note(test.id(), "failed", "passes, and was expected to fail")
            super().addUnexpectedSuccess(test)

    return Recording


class Recorder(DiscoverRunner):
    """Runs the tests, and names them all before the first one runs."""

    def get_resultclass(self):
        return _recording(super().get_resultclass() or self.test_runner.resultclass)

    def build_suite(self, *args, **kwargs):
        suite = super().build_suite(*args, **kwargs)
        _Outcomes.file = open(os.environ["DJANGO_OUTCOMES"], "w")
        for test in iter_test_cases(suite):
            _Outcomes.note(test.id(), "found")
        return suite

    def run_suite(self, suite, **kwargs):
        signal.signal(signal.SIGALRM, _expired)
        with _Outcomes.file:
            return super().run_suite(suite, **kwargs)
