"""Threads that repeat their work until they are stopped."""

import threading
import traceback

#: Longest time for a thread to finish its current work, seconds; only to end a hang.
PATIENCE = 180


class Crew:
    """The threads. An exception ends its thread, and is in `failures`."""

    def __init__(self):
        self._stop = threading.Event()
        self._threads = []
        self.failures = []

    def start(self, name, work, pause=0.0):
        """Starts a thread that calls `work`, and waits `pause` seconds after each call."""
        thread = threading.Thread(target=self._run, args=[name, work, pause], daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, name, work, pause):
        try:
            while not self._stop.is_set():
                work()
                self._stop.wait(pause)
        except BaseException:
            self.failures.append(f"{name}: {traceback.format_exc()}")

    def stop(self):
        """Waits until every thread has finished its current work."""
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        hanging = sum(thread.is_alive() for thread in self._threads)
        if hanging:
            self.failures.append(f"{hanging} threads did not finish within {PATIENCE} s")
