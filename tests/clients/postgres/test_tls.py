"""psycopg and psql over TLS, against `ropewalk serve --postgres-listen --dev-tls` with one user."""

import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import psycopg
from psycopg import errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from servers import Server, binary  # noqa: E402

#: Longest time of one program, seconds; only to end a hang.
PATIENCE = 60
PASSWORD = "oak and hemp"


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(
            binary(), listen="off", user=("ann", PASSWORD), options=["--postgres-listen", "127.0.0.1:0", "--dev-tls"]
        )
        cls.host, port = cls.server.postgres.rsplit(":", 1)
        cls.port = int(port)
        cls.certificate = str(cls.server.database / "tls" / "dev-cert.pem")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop()

    def connect(self, **options):
        options = {"sslmode": "require", "user": "ann", "password": PASSWORD, "dbname": "ropewalk"} | options
        return psycopg.connect(host=self.host, port=self.port, connect_timeout=20, autocommit=True, **options)

    def refused(self, **options):
        with self.assertRaises(psycopg.OperationalError) as refused:
            self.connect(**options)
        return str(refused.exception)

    def test_every_mode_that_encrypts(self):
        for mode in ["allow", "prefer", "require"]:
            with self.connect(sslmode=mode) as db:
                self.assertTrue(db.pgconn.ssl_in_use, mode)
                self.assertEqual(db.execute("SELECT 6 * 7").fetchone(), (42,))
        for mode in ["verify-ca", "verify-full"]:
            with self.connect(sslmode=mode, sslrootcert=self.certificate) as db:
                self.assertTrue(db.pgconn.ssl_in_use, mode)

    def test_nothing_is_said_without_it(self):
        self.assertIn("this port requires TLS", self.refused(sslmode="disable"))

    def test_who_is_there_is_asked_inside(self):
        self.assertIn("password authentication failed", self.refused(password="elm"))
        # Not offered, so it is the client that refuses.
        self.assertIn("channel binding", self.refused(channel_binding="require"))
        with self.connect(channel_binding="prefer") as db:
            self.assertEqual(db.execute("SELECT current_user").fetchone(), ("ann",))

    def begun_with_tls(self, *protocols):
        """The first byte that the server sends to a client which begins with TLS; none: it is disconnected."""
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False
        if protocols:
            context.set_alpn_protocols(protocols)
        body = struct.pack("!i", 3 << 16) + b"user\0ann\0\0"
        try:
            with socket.create_connection((self.host, self.port), timeout=PATIENCE) as plain:
                with context.wrap_socket(plain) as stream:
                    stream.sendall(struct.pack("!i", len(body) + 4) + body)
                    return stream.recv(1)
        except OSError:
            return b""

    def test_l6_client_that_begins_with_tls_is_served_if_it_requests_the_protocol(self):
        self.assertEqual(self.begun_with_tls("postgresql"), b"R")
        self.assertEqual(self.begun_with_tls("http/1.1"), b"")
        self.assertEqual(self.begun_with_tls(), b"")

    def test_large_answers_and_cancel_requests(self):
        with self.connect() as db:
            db.execute("CREATE TABLE long (id integer PRIMARY KEY, t text)")
            with db.cursor() as cursor, cursor.copy("COPY long FROM STDIN") as copy:
                for n in range(20_000):
                    copy.write_row((n, "x" * 100))
            self.assertEqual(sum(len(t) for (t,) in db.execute("SELECT t FROM long")), 2_000_000)
            timer = threading.Timer(0.3, db.cancel_safe)
            timer.start()
            with self.assertRaises(errors.QueryCanceled):
                db.execute("SELECT pg_sleep(60)")
            timer.join()
            db.execute("DROP TABLE long")

    def test_psql(self):
        psql = shutil.which("psql")
        if psql is None:
            self.skipTest("psql is not installed")
        where = f"host={self.host} port={self.port} user=ann dbname=ropewalk"
        run = subprocess.run(
            [psql, f"{where} sslmode=verify-full sslrootcert={self.certificate}", "-c", "\\conninfo"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
            env=os.environ | {"PGPASSWORD": PASSWORD},
        )
        self.assertIn("SSL connection (protocol: TLSv1.3", run.stdout)


if __name__ == "__main__":
    unittest.main()
