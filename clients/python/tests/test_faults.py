"""Broken connections, crashes of the server, threads, forks, credentials."""

from __future__ import annotations

import os
import random
import socket
import ssl
import subprocess
import threading
import time
import unittest

import ropewalk
from ropewalk.testing import Server

from .support import Case, require_binary, wait_until


class LosingProxy:
    """Forwards each connection's requests, and closes it in place of the next `losses` responses."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.losses = 0

    def __enter__(self) -> LosingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=[peer], daemon=True).start()

    def _forward(self, peer: socket.socket) -> None:
        with peer, socket.create_connection(self._server) as server:
            requests = threading.Thread(target=_copy, args=[peer, server], daemon=True)
            requests.start()
            # The responses of these tests are small: each is one packet.
            while response := server.recv(1 << 20):
                if self.losses > 0:
                    self.losses -= 1
                    break
                peer.sendall(response)
            peer.shutdown(socket.SHUT_RDWR)
            requests.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(1 << 20):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


class Crashes(unittest.TestCase):
    def test_kills_of_the_server_apply_each_keyed_write_once(self) -> None:
        with Server(require_binary()) as server:
            db = ropewalk.connect(server.url, retry_for=60)
            db.sql("CREATE TABLE stock (id int PRIMARY KEY, n int)")
            db.sql("INSERT INTO stock VALUES (0, 0), (1, 0), (2, 0), (3, 0)")
            shop, stop = db.events("shop"), threading.Event()
            done: list[list[str]] = [[] for _ in range(4)]
            failed: list[BaseException] = []
            seen: list[int] = []

            def write(worker: int) -> None:
                number = 0
                try:
                    while not stop.is_set():
                        number += 1
                        name = f"{worker}-{number}"
                        with db.transaction() as tx:
                            tx.append(shop, {"type": "A", "data": name})
                            tx.sql("UPDATE stock SET n = n + 1 WHERE id = %s", [worker])
                        shop.append({"type": "B", "data": name})
                        done[worker].append(name)
                except BaseException as error:
                    failed.append(error)

            def follow() -> None:
                for one in events:
                    seen.append(one.position)

            events = shop.subscribe()
            threads = [threading.Thread(target=write, args=[worker]) for worker in range(4)]
            follower = threading.Thread(target=follow)
            for thread in [*threads, follower]:
                thread.start()
            for _ in range(4):
                time.sleep(0.2 + random.random() * 0.4)
                server.kill()
                time.sleep(0.1)
                server.start()
            time.sleep(0.3)
            stop.set()
            for thread in threads:
                thread.join(60)
            self.assertEqual(failed, [])
            everything = [name for names in done for name in names]
            self.assertGreater(len(everything), 20)
            for kind in ("A", "B"):
                found = sorted(one.data for one in shop.read(ropewalk.where(kind)))
                self.assertEqual(found, sorted(everything), kind)
            counts = {row.id: row.n for row in db.sql("SELECT id, n FROM stock")}
            self.assertEqual(counts, {worker: len(names) for worker, names in enumerate(done)})
            wait_until(lambda: len(seen) >= shop.head())
            events.close()
            follower.join(20)
            self.assertEqual(seen, list(range(1, shop.head() + 1)))
            db.close()

    def test_write_whose_response_is_lost_is_applied_once(self) -> None:
        with Server(require_binary()) as server, LosingProxy(server.url) as proxy, ropewalk.connect(proxy.url) as db:
            shop = db.events("shop")
            shop.append({"type": "A"})
            proxy.losses = 2
            with db.transaction() as tx:
                tx.append(shop, {"type": "B"})
            self.assertEqual((tx.is_repeated, proxy.losses, shop.count()), (True, 0, 2))
            proxy.losses = 2
            self.assertEqual(shop.append({"type": "A"}).first, 3)
            proxy.losses = 1
            with self.assertRaises(ropewalk.ConnectionBroken), db.begin() as open_tx:
                # Not sent again: it would run twice.
                proxy.losses = 1
                open_tx.append(shop, {"type": "B"})
            self.assertEqual((proxy.losses, shop.count()), (0, 3))

    def test_write_without_key_is_not_sent_again(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            accepted: list[bytes] = []

            def serve() -> None:
                while True:
                    try:
                        peer, _ = listener.accept()
                    except OSError:
                        return
                    with peer:
                        accepted.append(peer.recv(65536))

            threading.Thread(target=serve, daemon=True).start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            db = ropewalk.connect(url, retry_for=0.3, automatic_keys=False)
            with self.assertRaises(ropewalk.ConnectionBroken) as broken:
                db.events("s").append({"type": "A"})
            self.assertEqual((broken.exception.is_sent, len(accepted)), (True, 1))
            with self.assertRaises(ropewalk.ConnectionBroken):
                db.events("s").append({"type": "A"}, idempotency_key="k")
            self.assertGreater(len(accepted), 2)
            self.assertEqual(sum(b"Idempotency-Key: k" in one for one in accepted), len(accepted) - 1)

    def test_response_cut_within_its_headers_is_no_response(self) -> None:
        whole = b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"stores":[]}'
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                for sent in range(len(b"HTTP/1.1 200"), len(whole) + 1):
                    peer, _ = listener.accept()
                    with peer:
                        peer.recv(65536)
                        peer.sendall(whole[:sent])

            threading.Thread(target=serve, daemon=True).start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with ropewalk.connect(url, retry_for=0) as db:
                for _ in range(len(b"HTTP/1.1 200"), len(whole)):
                    self.assertRaises(ropewalk.ConnectionBroken, db.stores)
                self.assertEqual(db.stores(), [])

    def test_server_that_was_never_reached_fails_at_once(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        started = time.monotonic()
        with self.assertRaises(ropewalk.ConnectionBroken) as broken:
            ropewalk.connect(f"http://127.0.0.1:{port}").stores()
        self.assertFalse(broken.exception.is_sent)
        self.assertLess(time.monotonic() - started, 5)
        with self.assertRaises(ValueError):
            ropewalk.connect("ftp://nowhere")


class Sharing(Case):
    def test_threads_share_a_client(self) -> None:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for n in range(30):
                    self.store.append({"type": "A", "tags": [f"t:{number}"], "data": n})
                    found = [one.data for one in self.store.read(ropewalk.where(tags=f"t:{number}"))]
                    if found != list(range(n + 1)):
                        raise AssertionError(found)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((errors, self.store.count()), ([], 240))

    def test_idle_connections_that_the_server_closed_are_replaced(self) -> None:
        with Server(require_binary()) as server:
            db = ropewalk.connect(server.url)
            self.addCleanup(db.close)
            db.sql("SELECT 1")
            server.stop()
            server.start()
            # A statement without a key is sent on a new connection.
            self.assertEqual(db.sql("SELECT 2").scalar(), 2)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_forked_process_opens_new_connections(self) -> None:
        self.store.append({"type": "A", "data": "before"})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(50):
                    self.store.append({"type": "A", "data": "child"})
                code = 0 if self.store.count(ropewalk.where("A")) > 50 else 2
            finally:
                os._exit(code)
        for _ in range(50):
            self.store.append({"type": "A", "data": "parent"})
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(self.store.count(), 101)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_forked_process_does_not_end_streams_of_its_parent(self) -> None:
        self.store.append([{"type": "A", "data": "x" * 1000} for _ in range(10_000)])
        with self.store.read() as events:
            next(events)
            child = os.fork()
            if child == 0:
                events.close()
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(sum(1 for _ in events), 9_999)

    def test_closed_client_rejects_requests(self) -> None:
        with ropewalk.connect(self.server.url) as db:
            db.stores()
        with self.assertRaises(RuntimeError):
            db.stores()


class Credentials(unittest.TestCase):
    def test_users_and_tokens_have_their_rights(self) -> None:
        with Server(require_binary()) as server:

            def connect(url: str = server.url, **options: str) -> ropewalk.Database:
                made = ropewalk.connect(url, **options)  # type: ignore[arg-type]
                self.addCleanup(made.close)
                return made

            db = connect()
            db.transport.request("PUT", "/v1/users/root", body={"password": "p w", "roles": {"*": ["admin"]}})
            with self.assertRaises(ropewalk.Unauthenticated):
                db.events("s").append({"type": "A"})
            with self.assertRaises(ropewalk.Unauthenticated):
                connect(user="root", password="wrong").stores()
            root = connect(user="root", password="p w")
            root.events("s").append({"type": "A"})
            in_url = server.url.replace("//", "//root:p%20w@")
            self.assertEqual(connect(in_url).events("s").count(), 1)
            made = root.transport.request("POST", "/v1/tokens", body={"name": "reader", "roles": {"s": ["read"]}})
            reader = connect(token=made.json()["token"])
            self.assertEqual(reader.events("s").count(), 1)
            with self.assertRaises(ropewalk.PermissionDenied), reader.transaction() as tx:
                tx.append("s", {"type": "A"})


class Encryption(unittest.TestCase):
    def test_tls_trusts_the_context_and_reuses_connections(self) -> None:
        with Server(require_binary(), options=("--dev-tls",)) as server:
            url = server.url.replace("http:", "https:")
            with ropewalk.connect(url) as untrusting, self.assertRaises(ropewalk.ConnectionBroken) as broken:
                untrusting.stores()
            self.assertIn("CERTIFICATE_VERIFY_FAILED", broken.exception.detail)
            context = ssl.create_default_context(cafile=str(server.database / "tls" / "dev-cert.pem"))
            with ropewalk.connect(url, context=context) as db:
                store = db.events("s")
                store.append([{"type": "A", "data": "x" * 100} for _ in range(5000)])
                [connection] = db.transport._idle
                self.assertEqual(sum(1 for _ in store.read()), 5000)
                with store.subscribe(after=4999) as events:
                    self.assertEqual(next(events).position, 5000)
                    store.count()
                    db.sql("SELECT 1")
                # The subscription took the first connection, the requests during it share another.
                self.assertEqual(len(db.transport._idle), 1)
                self.assertIsNot(db.transport._idle[0], connection)


class Programs(unittest.TestCase):
    def test_testing_server_without_a_program_says_so(self) -> None:
        with self.assertRaises((RuntimeError, OSError, subprocess.SubprocessError)):
            Server("/nonexistent/ropewalk")
