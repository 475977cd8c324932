"""MLflow, which records experiments of machine learning, on PostgreSQL's protocol: migrations by Alembic, its API, its pages."""

import sys
import unittest
from pathlib import Path

import program


class Mlflow(program.ProgramTest):
    title = "MLflow 3.7.0"
    protocol = "PostgreSQL"
    measured = "migrations by Alembic; runs, metrics and models over its API; a page of runs"

    @classmethod
    def prepare(cls):
        cls.mlflow = Path(sys.executable).with_name("mlflow")

    @classmethod
    def start(cls):
        command = [
            str(cls.mlflow), "server", "--backend-store-uri", f"postgresql+psycopg2://{cls.postgres}", "--host",
            "127.0.0.1", "--port", str(cls.port), "--workers", "1", "--artifacts-destination", "artifacts",
        ]
        return program.Running("mlflow", command, {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}, f"{cls.url}/health")

    def call(self, method, path, body=None):
        status, found = program.request(method, f"{self.url}/api/2.0/mlflow/{path}", body)
        self.assertEqual(status, 200, found)
        return found

    def test_runs_are_recorded_searched_and_shown(self):
        experiment = self.call("POST", "experiments/create", {"name": "Strength of ropes"})["experiment_id"]
        for fibre, strength in [("hemp", 0.71), ("sisal", 0.55), ("manila", 0.83)]:
            body = {"experiment_id": experiment, "run_name": fibre, "start_time": 1_700_000_000_000}
            run = self.call("POST", "runs/create", body)["run"]["info"]["run_id"]
            batch = {
                "run_id": run, "params": [{"key": "fibre", "value": fibre}], "tags": [{"key": "season", "value": "winter"}],
                "metrics": [{"key": "strength", "value": strength, "timestamp": 1_700_000_000_001, "step": step} for step in range(3)],
            }
            self.call("POST", "runs/log-batch", batch)
            self.call("POST", "runs/update", {"run_id": run, "status": "FINISHED", "end_time": 1_700_000_001_000})
        search = {
            "experiment_ids": [experiment], "filter": "metrics.strength > 0.6 and tags.season = 'winter'",
            "order_by": ["metrics.strength DESC"],
        }
        runs = self.call("POST", "runs/search", search)["runs"]
        self.assertEqual([run["info"]["run_name"] for run in runs], ["manila", "hemp"])
        self.call("POST", "registered-models/create", {"name": "rope", "tags": [{"key": "a", "value": "b"}]})
        models = self.call("GET", "registered-models/search")["registered_models"]
        self.assertEqual([model["name"] for model in models], ["rope"])
        self.call("POST", "runs/delete", {"run_id": runs[0]["info"]["run_id"]})
        runs = self.call("POST", "runs/search", search)["runs"]
        self.assertEqual([run["info"]["run_name"] for run in runs], ["hemp"])
        with self.page("mlflow") as page:
            page.goto(f"{self.url}/#/experiments/{experiment}/runs")
            page.get_by_text("sisal").first.wait_for()


if __name__ == "__main__":
    unittest.main()
