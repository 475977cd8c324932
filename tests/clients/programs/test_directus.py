"""Directus, an API and a data studio over a database in Node, on PostgreSQL's protocol: migrations, its API, its pages."""

import subprocess
import unittest

import program

LOGIN = {"email": "ann@example.org", "password": "hempRope1"}


class Directus(program.ProgramTest):
    @classmethod
    def prepare(cls):
        cls.place, cls.node = program.npm("directus", newer_node=True)

    @classmethod
    def start(cls):
        user, _, rest = cls.postgres.partition("@")
        address, _, database = rest.partition("/")
        host, _, port = address.partition(":")
        env = {
            "DB_CLIENT": "pg", "DB_HOST": host, "DB_PORT": port, "DB_DATABASE": database, "DB_USER": user, "DB_PASSWORD": "x",
            "SECRET": "hemp", "ADMIN_EMAIL": LOGIN["email"], "ADMIN_PASSWORD": LOGIN["password"], "HOST": "127.0.0.1",
            "PORT": str(cls.port), "PUBLIC_URL": cls.url, "TELEMETRY": "false",
        }
        cli = str(cls.place / "node_modules" / "directus" / "cli.js")
        made = subprocess.run(
            [cls.node, cli, "bootstrap"], cwd=cls.place, env=program.os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=program.LONG,
        )
        assert made.returncode == 0, f"directus does not migrate:\n{made.stdout[-6000:]}"
        return program.Running("directus", [cls.node, cli, "start"], env, f"{cls.url}/server/ping")

    def call(self, method, path, body=None, expected=200):
        status, found = program.request(method, f"{self.url}/{path}", body, getattr(self, "login", None))
        self.assertEqual(status, expected, found)
        return found

    def test_collection_is_made_filled_queried_and_shown(self):
        self.login = {"Authorization": f"Bearer {self.call('POST', 'auth/login', LOGIN)['data']['access_token']}"}
        fields = [
            {"field": "id", "type": "integer", "schema": {"is_primary_key": True, "has_auto_increment": True}, "meta": {"hidden": True}},
            {"field": "fibre", "type": "string", "schema": {}, "meta": {"interface": "input"}},
            {"field": "metres", "type": "integer", "schema": {}, "meta": {"interface": "input"}},
        ]
        self.call("POST", "collections", {"collection": "ropes", "schema": {}, "meta": {}, "fields": fields})
        self.call("POST", "items/ropes", [{"fibre": "hemp", "metres": 30}, {"fibre": "sisal", "metres": 12}, {"fibre": "hemp", "metres": 5}])
        found = self.call("GET", "items/ropes?filter[metres][_gt]=10&sort=-metres&fields=fibre")["data"]
        self.assertEqual([rope["fibre"] for rope in found], ["hemp", "sisal"])
        total = self.call("GET", "items/ropes?aggregate[sum]=metres&groupBy[]=fibre&sort=fibre")["data"]
        self.assertEqual([(row["fibre"], int(row["sum"]["metres"])) for row in total], [("hemp", 35), ("sisal", 12)])
        self.call("PATCH", "items/ropes/2", {"metres": 13})
        self.call("POST", "fields/ropes", {"field": "tarred", "type": "boolean", "schema": {"default_value": False}, "meta": {}})
        self.assertEqual(self.call("GET", "items/ropes/2")["data"], {"id": 2, "fibre": "sisal", "metres": 13, "tarred": False})
        self.call("DELETE", "items/ropes/1", expected=204)
        with self.page("directus") as page:
            page.goto(f"{self.url}/admin/login")
            page.fill("input[type=email]", LOGIN["email"])
            page.fill("input[type=password]", LOGIN["password"])
            page.click("button[type=submit]")
            page.wait_for_url("**/admin/content/**")
            page.goto(f"{self.url}/admin/content/ropes")
            page.get_by_text("sisal").first.wait_for()


if __name__ == "__main__":
    unittest.main()
