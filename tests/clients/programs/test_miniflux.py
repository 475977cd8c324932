"""Miniflux, a reader of feeds in Go, on PostgreSQL's protocol: migrations, its API, its pages."""

import base64
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer

import program

FEED = b"""<?xml version="1.0"?><rss version="2.0"><channel><title>Rope news</title><link>http://127.0.0.1/</link>
<item><title>A new walk</title><link>http://127.0.0.1/1</link><guid>1</guid><description>Hemp and sisal</description></item>
<item><title>Knots of the year</title><link>http://127.0.0.1/2</link><guid>2</guid><description>A bowline</description></item>
</channel></rss>"""


class Feed(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/rss+xml")
        self.end_headers()
        self.wfile.write(FEED)

    def log_message(self, *_):
        pass


class Miniflux(program.ProgramTest):
    title = "Miniflux 2.3.5"
    protocol = "PostgreSQL"
    measured = "135 migrations, a feed over its API, full-text search, its pages"

    @classmethod
    def prepare(cls):
        cls.miniflux = program.go("miniflux.app/v2", "v2.3.5", "miniflux.app")

    @classmethod
    def start(cls):
        env = {
            "DATABASE_URL": f"postgres://{cls.postgres}?sslmode=disable", "LISTEN_ADDR": f"127.0.0.1:{cls.port}", "RUN_MIGRATIONS": "1",
            "CREATE_ADMIN": "1", "ADMIN_USERNAME": "ann", "ADMIN_PASSWORD": "hemp rope", "BASE_URL": cls.url,
            "FETCHER_ALLOW_PRIVATE_NETWORKS": "1",
        }
        return program.Running("miniflux", [cls.miniflux], env, f"{cls.url}/healthcheck")

    def call(self, method, path, body=None):
        login = base64.b64encode(b"ann:hemp rope").decode()
        return program.request(method, f"{self.url}/v1{path}", body, {"Authorization": f"Basic {login}"})

    def test_feed_is_read_searched_and_shown(self):
        feeds = HTTPServer(("127.0.0.1", 0), Feed)
        threading.Thread(target=feeds.serve_forever, daemon=True).start()
        self.addCleanup(feeds.server_close)
        self.addCleanup(feeds.shutdown)
        status, category = self.call("POST", "/categories", {"title": "Ropes"})
        self.assertEqual(status, 201, category)
        feed = {"feed_url": f"http://127.0.0.1:{feeds.server_port}/feed.xml", "category_id": category["id"]}
        status, made = self.call("POST", "/feeds", feed)
        self.assertEqual(status, 201, made)
        _, entries = self.call("GET", "/entries?order=title&direction=asc")
        self.assertEqual([entry["title"] for entry in entries["entries"]], ["A new walk", "Knots of the year"])
        _, found = self.call("GET", "/entries?search=bowline")
        self.assertEqual([entry["title"] for entry in found["entries"]], ["Knots of the year"])
        status, _ = self.call("PUT", "/entries", {"entry_ids": [entries["entries"][0]["id"]], "status": "read"})
        self.assertEqual(status, 204)
        _, unread = self.call("GET", "/entries?status=unread")
        self.assertEqual(unread["total"], 1)
        with self.page("miniflux") as page:
            page.goto(self.url)
            page.fill("input[name=username]", "ann")
            page.fill("input[name=password]", "hemp rope")
            page.click("button[type=submit]")
            page.get_by_text("Knots of the year").first.wait_for()


if __name__ == "__main__":
    unittest.main()
