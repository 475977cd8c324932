"""Parse Server, a backend for apps in Node, on MongoDB's protocol: its schema and indexes, its REST API, its dashboard."""

import unittest

import program

HEADERS = {"X-Parse-Application-Id": "ropewalk", "X-Parse-REST-API-Key": "rest"}
MASTER = HEADERS | {"X-Parse-Master-Key": "master"}


class Parse(program.ProgramTest):
    title = "Parse Server 9.10.0 with Parse Dashboard 9.2.0"
    protocol = "MongoDB"
    measured = "its indexes; objects, queries, counts, aggregates and a transaction by REST; users whose names differ in case only; a class in the dashboard"

    @classmethod
    def prepare(cls):
        cls.place, cls.node = program.npm("parse")

    @classmethod
    def start(cls):
        script = cls.place / "node_modules" / "parse-server" / "bin" / "parse-server"
        env = {
            "PARSE_SERVER_APPLICATION_ID": "ropewalk", "PARSE_SERVER_MASTER_KEY": "master", "PARSE_SERVER_REST_API_KEY": "rest",
            "PARSE_SERVER_DATABASE_URI": f"{cls.server.mongo}/parse", "PARSE_SERVER_URL": f"{cls.url}/parse", "PORT": str(cls.port),
            "PARSE_SERVER_ALLOW_CLIENT_CLASS_CREATION": "true",
        }
        return program.Running("parse", [cls.node, str(script)], env, f"{cls.url}/parse/health")

    def call(self, method, path, body=None, headers=HEADERS, expected=200):
        status, found = program.request(method, f"{self.url}/parse/{path}", body, headers)
        self.assertEqual(status, expected, found)
        return found

    def test_objects_are_written_queried_and_counted(self):
        for player, score in [("ann", 7), ("bob", 3), ("cid", 5)]:
            body = {"player": player, "score": score, "tags": [player, "all"], "at": {"__type": "GeoPoint", "latitude": 1, "longitude": 2}}
            self.call("POST", "classes/Game", {**body, "at": None}, expected=201)
        found = self.call("GET", "classes/Game?order=-score&where=%7B%22score%22%3A%7B%22%24gt%22%3A4%7D%7D")["results"]
        self.assertEqual([game["player"] for game in found], ["ann", "cid"])
        self.call("PUT", f"classes/Game/{found[0]['objectId']}", {"score": {"__op": "Increment", "amount": 10}})
        self.assertEqual(self.call("GET", f"classes/Game/{found[0]['objectId']}")["score"], 17)
        counted = self.call("GET", "classes/Game?count=1&limit=0&where=%7B%22tags%22%3A%22all%22%7D")
        self.assertEqual(counted["count"], 3)
        batch = [{"method": "POST", "path": "/parse/classes/Game", "body": {"player": f"p{n}", "score": n}} for n in range(20)]
        self.call("POST", "batch", {"requests": batch, "transaction": True})
        self.assertEqual(self.call("GET", "classes/Game?count=1&limit=0")["count"], 23)
        total = self.call("GET", "aggregate/Game?%24group=%7B%22_id%22%3Anull%2C%22most%22%3A%7B%22%24max%22%3A%22%24score%22%7D%7D", headers=MASTER)
        self.assertEqual(total["results"][0]["most"], 19)
        self.call("DELETE", f"classes/Game/{found[1]['objectId']}")
        self.call("GET", f"classes/Game/{found[1]['objectId']}", expected=404)

    def test_user_signs_up_once_in_any_case_and_logs_in(self):
        made = self.call("POST", "users", {"username": "Ann", "password": "hemp rope", "email": "ann@example.org"}, expected=201)
        session = HEADERS | {"X-Parse-Session-Token": made["sessionToken"]}
        self.assertEqual(self.call("GET", "users/me", headers=session)["username"], "Ann")
        again = self.call("POST", "users", {"username": "ANN", "password": "x"}, expected=400)
        self.assertEqual(again["code"], 202)
        self.call("POST", "login", {"username": "Ann", "password": "hemp rope"})
        self.call("POST", "logout", {}, headers=session)
        self.call("GET", "users/me", headers=session, expected=400)

    def test_dashboard_shows_the_rows_of_a_class(self):
        self.call("POST", "classes/Rope", {"fibre": "manila", "metres": 30}, expected=201)
        port = program.free_port()
        script = self.place / "node_modules" / "parse-dashboard" / "bin" / "parse-dashboard"
        command = [
            self.node, str(script), "--appId", "ropewalk", "--masterKey", "master", "--serverURL", f"{self.url}/parse", "--appName", "Ropes",
            "--port", str(port), "--host", "127.0.0.1",
        ]
        dashboard = program.Running("parse-dashboard", command, {}, f"http://127.0.0.1:{port}/")
        self.addCleanup(dashboard.stop)
        with self.page("parse-dashboard") as page:
            page.goto(f"http://127.0.0.1:{port}/apps/Ropes/browser/Rope")
            page.get_by_text("manila").first.wait_for()


if __name__ == "__main__":
    unittest.main()
