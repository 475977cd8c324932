"""Superset, dashboards over SQL databases, on PostgreSQL's protocol: migrations by Alembic and its API."""

import subprocess
import unittest

import program


class Superset(program.ProgramTest):
    title = "Superset 6.1.0"
    protocol = "PostgreSQL"
    measured = "migrations by Alembic, roles; dashboards and annotations over its API"

    @classmethod
    def prepare(cls):
        cls.superset = program.pip("superset") / "superset"

    @classmethod
    def start(cls):
        env = {
            "SUPERSET_CONFIG_PATH": str(program.HERE / "superset" / "superset_config.py"), "FLASK_APP": "superset",
            "SUPERSET_DATABASE": f"postgresql+psycopg2://{cls.postgres}", "SUPERSET_HOME": str(program.directory("superset-home")),
        }
        admin = ["--username", "ann", "--firstname", "Ann", "--lastname", "Hemp", "--email", "ann@example.org", "--password", "rope"]
        for command in (["db", "upgrade"], ["fab", "create-admin", *admin], ["init"]):
            run = subprocess.run(
                [cls.superset, *command], env=program.os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=program.LONG,
            )
            assert run.returncode == 0, f"superset {' '.join(command[:2])} fails:\n{run.stdout[-6000:]}"
        command = [str(cls.superset), "run", "--host", "127.0.0.1", "--port", str(cls.port)]
        return program.Running("superset", command, env, f"{cls.url}/health")

    def call(self, method, path, body=None, expected=200):
        status, found = program.request(method, f"{self.url}/api/v1/{path}", body, getattr(self, "login", None))
        self.assertEqual(status, expected, found)
        return found

    def test_dashboard_and_annotations_are_made_and_found(self):
        token = self.call("POST", "security/login", {"username": "ann", "password": "rope", "provider": "db", "refresh": False})
        self.login = {"Authorization": f"Bearer {token['access_token']}"}
        layer = self.call("POST", "annotation_layer/", {"name": "Storms", "descr": "Ropes that broke"}, 201)["id"]
        storm = {"short_descr": "Gale", "start_dttm": "2026-01-02T03:04:05", "end_dttm": "2026-01-03T00:00:00", "json_metadata": "{}"}
        self.call("POST", f"annotation_layer/{layer}/annotation/", storm, 201)
        self.assertEqual(self.call("GET", f"annotation_layer/{layer}/annotation/")["count"], 1)
        self.call("POST", "dashboard/", {"dashboard_title": "Strength of ropes", "slug": "strength"}, 201)
        boards = self.call("GET", "dashboard/?q=(filters:!((col:dashboard_title,opr:title_or_slug,value:strength)))")
        self.assertEqual([board["dashboard_title"] for board in boards["result"]], ["Strength of ropes"])


if __name__ == "__main__":
    unittest.main()
