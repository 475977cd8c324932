"""Processes of a test, which can be killed, halted and started again."""

import contextlib
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

#: Longest time for a process to start, or for a node to lead or to catch up, seconds; only to end a hang.
PATIENCE = 120


def free_ports(number):
    """Ports that nothing listens on, below those that the system gives to clients: a process that starts again must find its
    port free."""
    ports = []
    while len(ports) < number:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in ports:
                ports.append(port)
    return ports


def until(what, condition, pause=0.05):
    """Waits for a condition, and returns what it returned."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"not within {PATIENCE} s: {what}")
        time.sleep(pause)
    return found


class Process:
    """A process that writes to a file, and can be killed, halted and started again."""

    def __init__(self, command, log):
        self._command, self._log = command, log
        self._running = None

    def start(self):
        with open(self._log, "ab") as log:
            self._running = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def lives(self):
        return self._running is not None and self._running.poll() is None

    def kill(self):
        """Ends it at once, as a crash does."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    def stop(self):
        """Ends it as an operator does, and returns its exit code."""
        self._running.terminate()
        code = self._running.wait(PATIENCE)
        self._running = None
        return code

    def signal(self, number):
        self._running.send_signal(number)

    def halted(self, seconds):
        """Halts it for so long, as a machine that swaps or a virtual machine that moves."""
        self.signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            self.signal(signal.SIGCONT)

    def log(self):
        return Path(self._log).read_text(errors="replace")
