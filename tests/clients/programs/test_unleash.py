"""Unleash, a server of feature flags in Node, on PostgreSQL's protocol: migrations, its API, its pages."""

import unittest

import program

PASSWORD = "unleash4all"


class Unleash(program.ProgramTest):
    title = "Unleash 8.2.0"
    protocol = "PostgreSQL"
    measured = "migrations, a flag over its API, its pages"

    @classmethod
    def prepare(cls):
        cls.place, cls.node = program.npm("unleash", newer_node=True)

    @classmethod
    def start(cls):
        script = cls.place / "node_modules" / "unleash-server" / "dist" / "server.js"
        user, _, rest = cls.postgres.partition("@")
        env = {
            "DATABASE_URL": f"postgres://{user}:x@{rest}", "DATABASE_SSL": "false", "HTTP_PORT": str(cls.port), "HTTP_HOST": "127.0.0.1",
            "CHECK_VERSION": "false", "SEND_TELEMETRY": "false", "INIT_ADMIN_API_TOKENS": "*:*.hemp",
        }
        return program.Running("unleash", [cls.node, str(script)], env, f"{cls.url}/health")

    def call(self, method, path, body=None, expected=200):
        status, found = program.request(method, f"{self.url}/api/{path}", body, {"Authorization": "*:*.hemp"})
        self.assertEqual(status, expected, found)
        return found

    def test_flag_is_created_switched_on_and_evaluated(self):
        flags = "admin/projects/default/features"
        self.call("POST", flags, {"name": "longer-ropes", "type": "release"}, 201)
        strategy = {"name": "flexibleRollout", "parameters": {"rollout": "100", "stickiness": "default", "groupId": "longer-ropes"}}
        self.call("POST", f"{flags}/longer-ropes/environments/development/strategies", strategy)
        self.call("POST", f"{flags}/longer-ropes/environments/development/on", {})
        found = self.call("GET", f"{flags}/longer-ropes")
        self.assertEqual([place["enabled"] for place in found["environments"] if place["name"] == "development"], [True])
        self.call("DELETE", f"{flags}/longer-ropes", expected=202)
        self.assertEqual(self.call("GET", flags)["features"], [])
        with self.page("unleash") as page:
            page.goto(f"{self.url}/login")
            page.fill("input[name=username]", "admin")
            page.fill("input[name=password]", PASSWORD)
            page.click("button[type=submit]")
            page.get_by_text("Default").first.wait_for()


if __name__ == "__main__":
    unittest.main()
