"""Prometheus as its project publishes it against `ropewalk serve`: it scrapes, receives and remote-writes everything to us, both
answer the same questions, it reads back by remote read, and promtool asks and pushes.

PROMETHEUS names the directory of `prometheus` and `promtool`; PROMETHEUS_SECONDS how long it scrapes (default 20);
PROMETHEUS_EXPRESSIONS how many random expressions are compared (default 400), PROMETHEUS_SEED which.
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import peer  # noqa: E402
from expressions import Expressions  # noqa: E402
from peer import Prometheus, Targets, ask, difference, get, installed, push, wait  # noqa: E402
from servers import Server, binary  # noqa: E402

SECONDS = float(os.environ.get("PROMETHEUS_SECONDS", 20))
EXPRESSIONS = int(os.environ.get("PROMETHEUS_EXPRESSIONS", 400))
SEED = int(os.environ.get("PROMETHEUS_SEED", 1))
QUERIES = Path(__file__).resolve().parents[3] / "bench" / "data" / "mytsdb-queries.tsv"

STEP = 15
#: Hours of history that are pushed before anything is scraped.
HISTORY = 3 * 3600
PODS = 12
BOUNDS = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"]


class Cluster:
    """The metrics of a small cluster: each call of `step` gives every series its next value."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.series = []
        for pod in range(PODS):
            labels = {
                "cluster": f"cluster-{pod % 2}", "job": "kubernetes-pods", "namespace": f"namespace-{pod % 4}",
                "node": f"node-{pod % 5:02}", "pod": f"pod-{pod}", "region": f"region-{pod % 3}",
                "service": f"service-{pod % 6:02}", "instance": f"10.0.0.{pod}:8080",
            }
            below = self.random.randrange
            for name, begin, add in [
                # Far from zero, where versions of Prometheus differ in how they extrapolate.
                ("container_cpu_usage_seconds_total", 1e6, lambda: below(15000) / 1000),
                ("container_network_receive_bytes_total", 1e9, lambda: below(100000)),
                ("container_network_transmit_bytes_total", 2e9, lambda: below(100000)),
                ("container_fs_reads_bytes_total", 3e9, lambda: below(100000)),
                ("error_count_total", 1e3, lambda: float(below(20) == 0)),
                ("kube_pod_container_status_restarts_total", 1e3, lambda: float(below(20) == 0)),
                ("kube_pod_status_ready", 1, lambda: 0),
                ("up", 1, lambda: 0),
            ]:
                self.add(name, labels, begin + pod * 1009, add) if begin > 1 else self.add(name, labels, begin, add)
            self.add("container_memory_working_set_bytes", labels, 4096 * (9000 + 131 * pod), lambda: 4096 * (below(241) - 120))
            self.add("node_load5", labels, 3.0, lambda: (below(43) - 21) / 100)
            for phase in ("Running", "Pending"):
                self.add("kube_pod_status_phase", labels | {"phase": phase}, 1, lambda: 0)
            for status in ("200", "500", "503"):
                more = {"status": status, "method": ["GET", "POST"][pod % 2]}
                self.add("http_requests_total", labels | more, 5e6 + 31 * pod, lambda: below(1000))
            for ordinal, bound in enumerate(BOUNDS):
                self.add("http_request_duration_seconds_bucket", labels | {"le": bound}, 1e6 * (ordinal + 1), lambda n=ordinal: 2 * n + 1)

    def add(self, name, labels, value, change):
        self.series.append([{"__name__": name} | labels, float(value), change])

    def step(self):
        for one in self.series:
            one[1] = one[1] + one[2]()
            # A counter begins again now and then.
            if one[0]["__name__"] == "http_requests_total" and self.random.random() < 0.002:
                one[1] = 5e6
        return [(labels, value) for labels, value, _ in self.series]


def history(urls, begin):
    """Pushes `HISTORY` seconds to each, step by step as Prometheus wants it, with holes; answers the cluster as it is then. It does
    not send on what is older than itself."""
    cluster, steps = Cluster(7), HISTORY // STEP
    rows = []
    for step in range(steps):
        time_ms = (begin + step * STEP) * 1000
        for place, (labels, value) in enumerate(cluster.step()):
            # Some series have holes, longer and shorter than what an instant selector looks back.
            hole = place % 9 == 4 and (200 <= step < 215 or 300 <= step < 340)
            rows.append((labels, [(time_ms, value)]) if not hole else None)
        if step % 20 == 19 or step == steps - 1:
            merged = {}
            for row in filter(None, rows):
                merged.setdefault(tuple(sorted(row[0].items())), (row[0], []))[1].extend(row[1])
            for url in urls:
                push(url, list(merged.values()))
            rows = []
    return cluster


def line(labels, value):
    """One line of an exposition."""
    pairs = ",".join(f'{name}="{text}"' for name, text in labels.items() if name != "__name__")
    return f"{labels['__name__']}{{{pairs}}} {value}"


class Live:
    """Pages that change with each scrape; one of them is missing after a while, one is the cluster that goes on."""

    def __init__(self):
        self.scrapes, self.broken, self.cluster = 0, False, None

    def page(self, path):
        if path == "/cluster":
            return "\n".join(line(labels, value) for labels, value in self.cluster.step()) + "\n"
        self.scrapes += 1
        if path == "/broken" and self.broken:
            return "this is no exposition {{{\n"
        lines = [
            "# HELP live_requests_total Requests of the live target.",
            "# TYPE live_requests_total counter",
            f'live_requests_total{{path="/a b",quoted="x\\"y\\\\z\\nw"}} {1000000 + 17 * self.scrapes}',
            "# HELP live_temperature Ups and downs.",
            "# TYPE live_temperature gauge",
            f"live_temperature {20 + self.scrapes % 7 / 2}",
            f'live_temperature{{room="grün"}} {-self.scrapes}.25e-3',
            'live_temperature{room="none"} NaN',
            'live_temperature{room="hot"} +Inf',
            "# TYPE live_seconds histogram",
        ]
        for ordinal, bound in enumerate(BOUNDS):
            lines.append(f'live_seconds_bucket{{le="{bound}"}} {(ordinal + 1) * self.scrapes + 100000}')
        lines.append(f"live_seconds_count {12 * self.scrapes + 100000}")
        lines.append(f"live_seconds_sum {3.5 * self.scrapes + 100000}")
        return "\n".join(lines) + "\n"


class RealPrometheus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ours = Server(binary(), http="127.0.0.1:0", options=["--prometheus-self-scrape", "off"])
        cls.addClassCleanup(cls.end, cls.ours)
        cls.url = cls.ours.http
        cls.live = Live()
        cls.targets = Targets(cls.live.page)
        cls.addClassCleanup(cls.targets.stop)
        write = {
            "url": f"{cls.url}/api/v1/write", "queue_config": {"batch_send_deadline": "200ms"},
            "send_exemplars": True, "metadata_config": {"send": True, "send_interval": "1s"},
        }
        idle = {"global": {"scrape_interval": "1s"}, "remote_write": [write]}
        scraping = idle | {
            "scrape_configs": [
                {"job_name": "live", "static_configs": [{"targets": [cls.targets.address]}]},
                {
                    "job_name": "cluster", "metrics_path": "/cluster", "honor_labels": True,
                    "static_configs": [{"targets": [cls.targets.address]}],
                },
                {"job_name": "broken", "metrics_path": "/broken", "static_configs": [{"targets": [cls.targets.address]}]},
                {"job_name": "nobody", "static_configs": [{"targets": ["127.0.0.1:1"]}]},
            ]
        }
        cls.prometheus = Prometheus(idle)
        cls.addClassCleanup(cls.prometheus.stop)
        cls.theirs = cls.prometheus.url
        # Beside the steps of subqueries: what a range holds at its very edge depends on the version of Prometheus.
        cls.begin = (int(time.time()) - HISTORY - 60) // STEP * STEP + 3
        cls.live.cluster = history([cls.theirs, cls.url], cls.begin)
        cls.prometheus.configure(scraping)
        time.sleep(SECONDS / 2)
        cls.live.broken = True
        time.sleep(SECONDS / 2)
        # Targets that are gone leave staleness markers.
        scraping["scrape_configs"].pop(0)
        cls.prometheus.configure(scraping)
        time.sleep(2)
        cls.prometheus.configure(idle)
        time.sleep(2)
        cls.caught_up()
        cls.now = cls.quiet_time()

    @staticmethod
    def end(server):
        assert server.stop(), "our server did not end well"

    @classmethod
    def caught_up(cls):
        """Waits until all that Prometheus has was sent, and taken."""

        def counts(url):
            names = json.loads(get(f"{url}/api/v1/label/__name__/values")[1])["data"]
            found = {}
            for name in names:
                _, answer = ask(url, "query", query=f"sum(count_over_time({name}[4h]))")
                found[name] = [row["value"][1] for row in answer["data"]["result"]]
            return found

        wait(lambda: counts(cls.url) == counts(cls.theirs) != {}, "samples are missing", lambda: (counts(cls.url), counts(cls.theirs)))
        assert cls.prometheus.metric("prometheus_remote_storage_samples_failed_total") == 0
        assert cls.prometheus.metric("prometheus_remote_storage_samples_dropped_total") == 0

    @classmethod
    def quiet_time(cls):
        """A moment that lies on no sample's edge: what a range holds there is no matter of taste."""
        _, answer = ask(cls.theirs, "query", query='{job=~"live|broken|nobody"}[10m]')
        _, cluster = ask(cls.theirs, "query", query="node_load5[10m]")
        rows = answer["data"]["result"] + cluster["data"]["result"]
        taken = {round(point[0] % 1 * 1000) for row in rows for point in row["values"]}
        free = next(ms for ms in range(120, 1000) if not taken & {ms - 1, ms, ms + 1})
        # Seven seconds after a step of the history.
        return (int(time.time()) // STEP) * STEP + 7 + free / 1000

    def same(self, path, query, **parameters):
        codes, answers = zip(*(ask(url, path, query=query, **parameters) for url in (self.url, self.theirs)))
        found = difference(*answers)
        self.assertIsNone(found, f"{query}  {parameters}\n{found}")
        self.assertEqual(codes[0], codes[1], (query, answers))
        return answers[0]

    def both(self, query, at):
        answer = self.same("query", query, time=at)
        self.same("query_range", query, start=at - 1800, end=at, step=60)
        return answer

    def test_the_49_queries(self):
        """The queries of the mytsdb report, at several moments, and as ranges as they stand there."""
        empty = set()
        for line in QUERIES.read_text().splitlines()[1:]:
            number, _, kind, name, query = line.split("\t")
            for back in (0, 60, 1830, 7200):
                at = self.now - back
                if kind == "i":
                    answer = self.both(query, at)
                else:
                    span, step = (int(part[:-1]) * {"h": 3600, "s": 1}[part[-1]] for part in kind.split("/"))
                    answer = self.same("query_range", query, start=at - span, end=at, step=step)
                if back == 1830 and not answer["data"]["result"]:
                    empty.add(int(number))
        self.assertEqual(empty, set(), "queries that find nothing prove nothing")

    def test_random_expressions(self):
        make = Expressions(random.Random(SEED))
        answered = 0
        _, build = get(f"{self.theirs}/api/v1/status/buildinfo")
        is_old = json.loads(build)["data"]["version"].startswith("2.")
        for _ in range(EXPRESSIONS):
            query, back = make.next(), make.pick([0, 30, 400, 3000, 6000, 9000])
            # Before version 3 a subquery holds the step at its beginning, which one within another meets, and atan2 keeps names.
            if is_old and (len(re.findall(r"\[\w+:\w+\]", query)) > 1 or "atan2" in query):
                continue
            with self.subTest(seed=SEED):
                answer = self.same("query", query, time=self.now - back)
                answered += bool(answer.get("data", {}).get("result"))
                if make.chance(0.5):
                    step = make.pick([15, 60, 300])
                    self.same("query_range", query, start=self.now - back - 20 * step, end=self.now - back, step=step)
        self.assertGreater(answered, EXPRESSIONS // 3)

    def test_syntax_trees(self):
        _, build = get(f"{self.theirs}/api/v1/status/buildinfo")
        if json.loads(build)["data"]["version"].startswith("2."):
            self.skipTest("this Prometheus has no such trees")
        make = Expressions(random.Random(SEED))
        for query in [make.next() for _ in range(EXPRESSIONS)] + ["-{a!~'b'}", "Inf", "('a')", "foo @ end()"]:
            ours, theirs = (ask(url, "parse_query", query=query) for url in (self.url, self.theirs))
            self.assertEqual(ours, theirs, query)

    def test_scraped_samples_and_staleness(self):
        for query in [
            "live_requests_total", "live_temperature", "rate(live_requests_total[1m])", "up", "scrape_samples_scraped",
            'up{job="live"}[10m]', 'up{job="broken"}[10m]', 'count by (job) (up)', "live_temperature[10m]",
            "histogram_quantile(0.9, rate(live_seconds_bucket[1m]))", "resets(live_requests_total[5m])",
            "changes(live_temperature[5m])", "count_over_time(live_temperature[5m])",
        ]:
            for back in (0, 3, 8.5, 60):
                self.same("query", query, time=self.now - back)
            if not query.endswith("m]"):
                self.same("query_range", query, start=self.now - 90, end=self.now, step=1)

    def test_names(self):
        for path, parameters in [
            ("labels", {}), ("labels", {"match[]": "up"}), ("label/job/values", {}), ("label/__name__/values", {}),
            ("label/pod/values", {"match[]": 'up{namespace="namespace-1"}'}),
        ]:
            text = "?" + "&".join(f"{key}={peer.urllib.parse.quote(value)}" for key, value in parameters.items())
            ours, theirs = (json.loads(get(f"{url}/api/v1/{path}{text}")[1]) for url in (self.url, self.theirs))
            self.assertEqual(ours["data"], theirs["data"], path)
        for match in ("up", '{job="live"}', '{__name__=~"live_.*"}'):
            found = [ask(url, "series", **{"match[]": match})[1]["data"] for url in (self.url, self.theirs)]
            rows = [sorted(tuple(sorted(row.items())) for row in rows) for rows in found]
            self.assertEqual(*rows)
            self.assertGreater(len(rows[0]), 0)

    def test_metadata(self):
        def known():
            return json.loads(get(f"{self.url}/api/v1/metadata?metric=live_requests_total")[1])["data"]

        wanted = {"live_requests_total": [{"type": "counter", "help": "Requests of the live target.", "unit": ""}]}
        self.assertEqual(known(), wanted)

    def test_remote_read(self):
        """A Prometheus without samples of its own answers from ours."""
        reader = Prometheus({"remote_read": [{"url": f"{self.url}/api/v1/read", "read_recent": True}]})
        try:
            for query, back in [
                ("sum by (namespace) (rate(container_cpu_usage_seconds_total[5m]))", 60), ("node_load5", 60),
                ("live_temperature[10m]", 0), ("last_over_time(http_requests_total[3h])", 60),
            ]:
                at = self.now - back
                (_, ours), (_, theirs) = (ask(url, "query", query=query, time=at) for url in (reader.url, self.theirs))
                self.assertIsNone(difference(ours, theirs), query)
                self.assertGreater(len(ours["data"]["result"]), 0, query)
        finally:
            reader.stop()

    def promtool(self, *arguments, text=None):
        run = subprocess.run([installed("promtool"), *arguments], capture_output=True, text=True, input=text, timeout=60)
        self.assertEqual(run.returncode, 0, (arguments, run.stdout, run.stderr))
        return run.stdout

    def test_promtool_asks(self):
        at = ["--time", str(self.now - 60)]
        for form in ("promql", "json"):
            outputs = [
                self.promtool("query", "instant", f"--format={form}", *at, url, 'sort(sum by (namespace) (node_load5))')
                if "--format" in self.promtool("query", "instant", "--help")
                else self.promtool("query", "instant", *at, url, 'sort(sum by (namespace) (node_load5))')
                for url in (self.url, self.theirs)
            ]
            self.assertEqual(*outputs)
            self.assertIn("namespace-1", outputs[0])
        period = ["--start", str(int(self.now - 600)), "--end", str(int(self.now - 60)), "--step", "60s"]
        outputs = [self.promtool("query", "range", *period, url, "count(up)") for url in (self.url, self.theirs)]
        self.assertEqual(*outputs)
        outputs = [sorted(self.promtool("query", "series", "--match=live_temperature", url).splitlines()) for url in (self.url, self.theirs)]
        self.assertEqual(*outputs)
        self.assertEqual(len(outputs[0]), 8)  # of two jobs
        outputs = [self.promtool("query", "labels", url, "job") for url in (self.url, self.theirs)]
        self.assertEqual(*outputs)

    def test_promtool_takes_the_rules_that_we_take(self):
        """Files that are read again while the server runs, good ones and others."""
        rule = "groups: [{name: g, interval: 1s, rules: [%s]}]"
        files = [
            (True, rule % "{record: 'job:up:sum', expr: 'sum by (job) (up)', labels: {by: rule}}"),
            (True, rule % "{alert: Down, expr: up == 0, for: 5m, keep_firing_for: 1m, annotations: {text: '{{ $labels.job }}'}}"),
            (True, "groups: []"),
            (True, "groups: [{name: g, limit: 3, rules: []}]"),
            (False, rule % "{record: a, expr: 'up{'}"),
            (False, rule % "{record: a, alert: b, expr: up}"),
            (False, rule % "{record: a, expr: up, for: 1m}"),
            (False, rule % "{alert: a, expr: up, hold: 1m}"),
            (False, "groups: [{name: g}, {name: g}]"),
            (False, "groups: [{name: ''}]"),
        ]
        with tempfile.TemporaryDirectory() as place:
            rules, config = Path(place) / "rules.yml", Path(place) / "prometheus.yml"
            rules.write_text("groups: []")
            config.write_text("rule_files: [rules.yml]")
            ours = Server(binary(), http="127.0.0.1:0", options=["--prometheus-config", str(config)])
            try:
                for is_good, text in files:
                    rules.write_text(text)
                    run = subprocess.run([installed("promtool"), "check", "rules", str(rules)], capture_output=True, text=True, timeout=60)
                    status, body = get(f"{ours.http}/-/reload", b"")
                    self.assertEqual((run.returncode == 0, status), (is_good, 200 if is_good else 500), (text, run.stderr, body))
            finally:
                self.end(ours)

    def test_promtool_checks_that_we_live(self):
        if "check healthy" not in self.promtool("--help"):
            self.skipTest("this promtool has no `check healthy`")
        self.promtool("check", "healthy", "--url", self.url)
        self.promtool("check", "ready", "--url", self.url)

    def test_promtool_pushes(self):
        if "push metrics" not in self.promtool("--help"):
            self.skipTest("this promtool has no `push metrics`")
        text = "# HELP pushed_total What was pushed.\n# TYPE pushed_total counter\npushed_total{by=\"promtool\"} 42\n"
        self.promtool("push", "metrics", self.url, text=text)
        _, answer = ask(self.url, "query", query='pushed_total{by="promtool"}')
        self.assertEqual(answer["data"]["result"][0]["value"][1], "42")

    def test_promtool_reads_our_own_metrics(self):
        _, page = get(f"{self.url}/metrics")
        self.promtool("check", "metrics", "--extended", text=page.decode())


if __name__ == "__main__":
    unittest.main()
