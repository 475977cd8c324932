"""Every part of PromQL and of its HTTP face, asked of a real Prometheus and of `ropewalk serve` over the same series: values, native
histograms, errors word for word, annotations, syntax trees, formatted queries, and what the endpoints around them answer.

Needs Prometheus 3.15 (PROMETHEUS names its directory); an older one has another language, and then all of this is skipped.
PROMETHEUS_EXPRESSIONS (default 400) says how many random expressions are compared, PROMETHEUS_SEED which."""

import json
import os
import random
import sys
import time
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import peer  # noqa: E402
from language import COUNT, STEP, Whole, lines, request, series  # noqa: E402
from peer import Prometheus, ask, get  # noqa: E402
from servers import Server, binary  # noqa: E402

EXPRESSIONS = int(os.environ.get("PROMETHEUS_EXPRESSIONS", 400))
SEED = int(os.environ.get("PROMETHEUS_SEED", 1))
#: Differences that are shown before a test gives up.
SHOWN = 40

#: What Prometheus says of texts that MetricsQL gives a meaning.
OURS_ALONE = [
    "unknown function with name", "modifier must be preceded by", "expected type range vector in call to function",
    "wrong number of arguments for aggregate", "bad number or duration syntax", "unexpected identifier", "unexpected <by>", "unexpected <without>",
    # Prometheus wants a number before the colon; `[step():1m]` says enough.
    "unexpected colon before duration", "error parsing regexp",
]

FEATURES = "promql-experimental-functions,promql-extended-range-selectors,promql-binop-fill-modifiers"


def equal(ours, theirs):
    """True when two parts of answers say the same; numbers may differ in their last digits."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(equal(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    try:
        return ours == theirs or peer.close(ours, theirs)
    except (TypeError, ValueError):
        return False


def rows(answer, ordered):
    """The rows of an answer; where their order says nothing, by labels."""
    result = answer["data"]["result"]
    if answer["data"]["resultType"] in ("vector", "matrix") and not ordered:
        return sorted(result, key=lambda row: sorted(row["metric"].items()))
    return result


def difference(ours, theirs, ordered=False):
    """What differs between two answers, as text; `None` if nothing does."""
    if ours["status"] != theirs["status"]:
        return f"{ours.get('error', 'a value')}\n    instead of {theirs.get('error', 'a value')}"
    if ours["status"] == "error":
        mine, other = ((answer["errorType"], answer["error"]) for answer in (ours, theirs))
        return None if mine == other else f"{mine}\n    instead of {other}"
    if ours["data"]["resultType"] != theirs["data"]["resultType"]:
        return f"{ours['data']['resultType']} instead of {theirs['data']['resultType']}"
    mine, other = rows(ours, ordered), rows(theirs, ordered)
    if not equal(mine, other):
        if isinstance(mine, list) and mine and isinstance(mine[0], dict):
            labels, others = ([row["metric"] for row in part] for part in (mine, other))
            if labels != others:
                more = [row for row in labels if row not in others][:3]
                less = [row for row in others if row not in labels][:3]
                return f"{len(labels)} series instead of {len(others)}; too many: {more}; missing: {less}"
            pairs = [(a, b) for a, b in zip(mine, other) if not equal(a, b)]
            name, kind = pairs[0][0]["metric"], next(k for k in pairs[0][1] if k != "metric" and not equal(pairs[0][0].get(k), pairs[0][1][k]))
            a, b = pairs[0][0].get(kind), pairs[0][1][kind]
            if kind in ("values", "histograms") and a:
                spots = [(x, y) for x, y in zip(a, b) if not equal(x, y)]
                a, b = spots[0] if spots else (f"{len(a)} points", f"{len(b)} points")
            return f"{name} {a}\n    instead of {b}"
        return f"{mine} instead of {other}"
    for kind in ("warnings", "infos"):
        mine, other = sorted(ours.get(kind, [])), sorted(theirs.get(kind, []))
        # Of several samples of one step that do not fit together Prometheus tells of the last one, whichever that is.
        mine = [text for text in mine if text in other or "incompatible sample types" not in text]
        # Of many, which ones are left out is a matter of chance.
        if mine != other and len(other) <= 10:
            return f"{kind} {mine}\n    instead of {other}"
    return None


class Language(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prometheus = Prometheus({}, ["--enable-feature", FEATURES, "--web.enable-admin-api"])
        cls.addClassCleanup(cls.prometheus.stop)
        if peer.status(f"{cls.prometheus.url}/api/v1/features") != 200:
            raise unittest.SkipTest(f"SKIPPED: {peer.installed('prometheus')} is older than 3.15, which this is about")
        cls.ours = Server(binary(), http="127.0.0.1:0", options=["--prometheus-self-scrape", "off"])
        cls.addClassCleanup(cls.end)
        cls.urls = (cls.ours.http, cls.prometheus.url)
        begin = (int(time.time()) - (COUNT + 2) * STEP) // STEP * STEP
        cls.last = begin + (COUNT - 1) * STEP
        all_series = series(begin, random.Random(3))
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
        for first in range(0, COUNT, 20):
            part = [(labels, [one for one in samples[first : first + 20] if one is not None]) for labels, samples in all_series]
            body = request([row for row in part if row[1]])
            for url in cls.urls:
                code, text = get(f"{url}/api/v1/write", body, headers)
                assert code in (200, 204), (code, text)

    @classmethod
    def end(cls):
        assert cls.ours.stop(), "our server did not end well"

    def ask_both(self, path, **parameters):
        return tuple(ask(url, path, **parameters) for url in self.urls)

    def compare(self, found, query, ordered=False, **parameters):
        """Asks both, at one time or at steps, and notes what differs."""
        path = "query_range" if "step" in parameters else "query"
        (code, ours), (other_code, theirs) = self.ask_both(path, query=query, **parameters)
        differs = difference(ours, theirs, ordered)
        if differs is None and code != other_code:
            differs = f"{code} instead of {other_code}"
        if differs is not None:
            found.append(f"{query}  {parameters}\n    {differs}")
        return theirs

    def nothing(self, found):
        if found:
            self.fail(f"{len(found)} differences (seed {SEED}):\n" + "\n".join(found[:SHOWN]))

    def test_written(self):
        found = []
        for query in lines("written.promql"):
            ordered = query.startswith(("sort", "topk", "bottomk"))
            for back in (4, 613):
                self.compare(found, query, ordered, time=self.last - back)
            self.compare(found, query, start=self.last - 1400.5, end=self.last - 5, step=61)
        self.nothing(found)

    def test_random(self):
        make, found, answered = Whole(random.Random(SEED)), [], 0
        for _ in range(EXPRESSIONS):
            query = make.next()
            theirs = self.compare(found, query, time=self.last - make.pick([4, 47, 613, 1800]))
            answered += bool(theirs.get("data", {}).get("result"))
            if make.chance(0.4):
                step = make.pick([13, 60, 305])
                self.compare(found, query, start=self.last - 8 * step - 3, end=self.last - 3, step=step)
        self.nothing(found)
        self.assertGreater(answered, EXPRESSIONS // 3)

    def test_mistakes(self):
        """Errors word for word, with their places. What MetricsQL allows and PromQL refuses is left out."""
        make, found = Whole(random.Random(SEED)), []
        for query in lines("mistakes.promql") + [make.broken() for _ in range(3 * EXPRESSIONS)]:
            answers = [ask(url, "query", query=query, time=self.last - 4) for url in self.urls]
            (_, ours), (_, theirs) = answers
            # Not every text that we take is PromQL: MetricsQL goes on where PromQL stops.
            if any(words in theirs.get("error", "") for words in OURS_ALONE):
                continue
            differs = difference(ours, theirs)
            if differs is not None:
                found.append(f"{query}\n    {differs}")
        self.nothing(found)

    def test_trees_and_forms(self):
        make, found = Whole(random.Random(SEED)), []
        for query in lines("written.promql") + lines("mistakes.promql") + [make.next() for _ in range(EXPRESSIONS)]:
            for path in ("parse_query", "format_query"):
                try:
                    (_, ours), (_, theirs) = self.ask_both(path, query=query)
                except ValueError:
                    # A tree with a number that JSON does not have: Prometheus has no answer.
                    self.assertIn("NaN", query)
                    continue
                if theirs["status"] == "success" and ours != theirs:
                    found.append(f"{path} {query}\n    {ours}\n    instead of {theirs}")
        self.nothing(found)

    def test_endpoints(self):
        """Status and body of requests, right ones and wrong ones."""
        at = self.last
        found = []
        for path in [
            "labels", "labels?limit=2", "labels?limit=0", "labels?limit=-1", "labels?limit=x", "labels?limit=1e3", "labels?limit=99999999999999999999",
            "labels?match[]=stock", "labels?match[]=stock&match[]=target_info", "labels?match[]=stock&limit=1", "labels?match[]={}",
            "labels?match[]=stock{", "labels?match[]=rate(stock[5m])", "labels?match[]=stock offset 5m", "labels?match[]={job=~\".*\"}", "labels?start=x", "labels?end=x",
            "labels?match[]=", "labels?start=0&end=1", "label/job/values", "label/job/values?limit=2", "label/job/values?match[]=stock",
            "label/job/values?match[]=stock{zone=\"a\"}&match[]={\"zähler.total\"}", "label/nothere/values", "label/__name__/values",
            "label/__name__/values?match[]={job=~\"shop.*\"}", "label/späti/values", "label/U__sp__e4_ti/values", "label/U__sp_e4_ti/values", "label/U__job/values",
            "label/a-b/values", "label/job/values?limit=x", "label/job/values?match[]={", "series", "series?match[]=stock",
            "series?match[]=stock&limit=0", "series?match[]=stock&limit=-3", "series?match[]=stock&match[]={zone=\"a\",__name__=\"target_info\"}", "series?match[]={",
            "series?match[]={}", "series?match[]=nothing", "series?match[]=stock&start=y", "series?match[]=stock&start=0&end=1", "series?start=0",
            "query", "query?query=", "query?query=stock&time=x", "query?query=stock&timeout=x", "query?query=stock&lookback_delta=x", "query?query=stock&limit=x",
            "query?query=stock&limit=-1", f"query?query=stock&limit=2&time={at}", f"query?query=sum(stock)&limit=1&time={at}", f"query?query=stock&time={at}&lookback_delta=1s",
            f"query?query=stock&time={at + 30}&lookback_delta=20s", f"query?query=1&time={at}&lookback_delta=-5", "query?query=1&time=1.0005", "query?query=1&time=1e3",
            "query?query=1&time=1970-01-01T00:00:01Z", "query?query=1&time=1970-01-01T01:00:01.5%2B01:00", "query?query=1&time=1970-01-01", "query?query=1&time=-1",
            "query_range?query=1", "query_range?query=1&start=1", "query_range?query=1&start=1&end=2",
            "query_range?query=1&start=1&end=2&step=x", "query_range?query=1&start=1&end=2&step=0", "query_range?query=1&start=1&end=2&step=-1", "query_range?query=1&start=2&end=1&step=1",
            "query_range?query=1&start=1&end=20000&step=1", "query_range?query=1&start=1&end=2&step=1e30", "query_range?query=1&start=1&end=11001&step=1", "query_range?query=1&start=1&end=11002&step=1",
            "query_range?query=stock[5m]&start=1&end=2&step=1", "query_range?query=\"a\"&start=1&end=2&step=1", "query_range?query=1&start=1&end=4&step=1500ms", "query_range?query=1&start=1&end=4&step=1.5",
            "query_range?query=1&start=1&end=2&step=1&timeout=q", f"query_range?query=stock&start={at - 60}&end={at}&step=30&limit=2",
            "parse_query", "parse_query?query=", "parse_query?query=stock{", "format_query", "format_query?query=stock{", "format_query?query=sum(stock)",
            "query_exemplars?query=stock{", "query_exemplars?query=stock&start=x", "query_exemplars?query=stock&start=2&end=1", "query_exemplars?query=stock&start=1&end=2", "query_exemplars",
            "metadata", "metadata?limit=x", "metadata?limit=0", "metadata?limit_per_metric=x", "metadata?metric=nothing", "targets/metadata?metric=nothing",
            "status/tsdb?limit=0", "status/tsdb?limit=x", "status/tsdb?limit=10001", "status/walreplay", "notifications", "rules", "alerts", "alertmanagers",
            "rules?type=alert", "rules?type=x", "scrape_pools",
            f"query?query=stock&time={at}&stats=odd",
        ]:
            url = peer.urllib.parse.quote(path, safe="/?&=%")
            answers = [get(f"{base}/api/v1/{url}") for base in self.urls]
            shown = []
            for code, body in answers:
                try:
                    body = json.loads(body)
                    if isinstance(body.get("data"), dict):
                        body["data"].pop("stats", None)
                    if path.startswith("series") and body["status"] == "success":
                        body["data"].sort(key=lambda labels: sorted(labels.items()))
                except ValueError:
                    body = body.decode()
                shown.append((code, body))
            if not equal(list(shown[0]), list(shown[1])):
                found.append(f"{path}\n    {str(shown[0])[:500]}\n    instead of {str(shown[1])[:500]}")
        self.nothing(found)

    def test_statistics(self):
        """The same fields, whatever their values."""

        def shape(value):
            return {key: shape(inner) for key, inner in value.items()} if isinstance(value, dict) else None

        for word in ("true", "all"):
            (_, ours), (_, theirs) = self.ask_both("query", query="sum(rate(sales_total[5m]))", time=self.last, stats=word)
            self.assertEqual(shape(ours["data"]["stats"]), shape(theirs["data"]["stats"]))

    def test_features(self):
        """All that Prometheus says of itself is told of us, too, and what it can do in a language, we can."""
        (_, ours), (_, theirs) = (json.loads(get(f"{url}/api/v1/features")[1]).values() for url in self.urls)
        for category in ("promql", "promql_functions", "promql_operators"):
            self.assertEqual(ours[category], theirs[category])
        self.assertEqual(theirs["service_discovery_providers"].keys(), ours["service_discovery_providers"].keys())
        for category in ("api", "rules", "scrape", "otlp_receiver"):
            self.assertEqual({}, {k: v for k, v in ours[category].items() if k not in theirs[category]})

    def test_the_version_is_that_of_what_we_compare_with(self):
        ours = json.loads(get(f"{self.urls[0]}/api/v1/status/buildinfo")[1])["data"]
        theirs = json.loads(get(f"{self.urls[1]}/api/v1/status/buildinfo")[1])["data"]
        self.assertEqual(ours.keys(), theirs.keys())
        # A build of one's own may have no version.
        self.assertIn(theirs["version"], ("", ours["version"]))


if __name__ == "__main__":
    unittest.main()
