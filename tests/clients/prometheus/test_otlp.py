"""The Python SDK of OpenTelemetry, as it is published, exports metrics to `ropewalk serve`: over gRPC and over HTTP, packed and not."""

import json
import sys
import unittest
import urllib.parse
from pathlib import Path

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as OverGrpc
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as OverHttp
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peer import ask, get  # noqa: E402
from servers import Server, binary  # noqa: E402


class OpenTelemetry(unittest.TestCase):
    def exported(self, server, exporter, job):
        """Exports one of each instrument, and asks for what there is."""
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
        view = View(instrument_type=Histogram, instrument_name="size", aggregation=ExponentialBucketHistogramAggregation())
        resource = Resource({"service.name": job, "service.instance.id": "i1", "host.name": "h"})
        provider = MeterProvider([reader], resource=resource, views=[view])
        meter = provider.get_meter("test")
        meter.create_counter("requests", unit="1", description="Requests.").add(3, {"http.method": "GET"})
        meter.create_up_down_counter("queue.length").add(-2)
        meter.create_histogram("latency", unit="s", explicit_bucket_boundaries_advisory=[0.1, 1.0]).record(0.5)
        meter.create_histogram("size", unit="By").record(100)
        self.assertTrue(provider.force_flush())
        provider.shutdown()

        def value(query):
            code, answer = ask(server.http, "query", query=query)
            self.assertEqual((code, len(answer["data"]["result"])), (200, 1), (query, answer))
            return answer["data"]["result"][0]["value"][1]

        own = f'job="{job}",instance="i1"'
        self.assertEqual(value(f'requests_total{{{own},http_method="GET"}}'), "3")
        self.assertEqual(value(f"queue_length{{{own}}}"), "-2")
        self.assertEqual(value(f'latency_seconds_bucket{{{own},le="1"}}'), "1")
        self.assertEqual(value(f"latency_seconds_sum{{{own}}}"), "0.5")
        self.assertEqual(value(f"histogram_count(size_bytes{{{own}}})"), "1")
        self.assertEqual(value(f"histogram_sum(size_bytes{{{own}}})"), "100")
        self.assertEqual(value(f'target_info{{{own},host_name="h"}}'), "1")
        _, page = get(f"{server.http}/api/v1/metadata?{urllib.parse.urlencode({'metric': 'requests_total'})}")
        self.assertEqual(json.loads(page)["data"]["requests_total"][0]["help"], "Requests.")

    def test_over_grpc_and_http(self):
        with Server(binary(), http="127.0.0.1:0") as server:
            url = f"{server.http}/api/v1/otlp/v1/metrics"
            self.exported(server, OverGrpc(endpoint=server.url, insecure=True), "grpc")
            self.exported(server, OverGrpc(endpoint=server.url, insecure=True, compression=grpc.Compression.Gzip), "packed")
            self.exported(server, OverHttp(endpoint=url), "http")
            self.exported(server, OverHttp(endpoint=url, compression=Compression.Gzip), "zipped")

    def test_deltas(self):
        """The SDK sends what came since its last export; asked is what came in all, over a client that begins anew."""
        from opentelemetry.sdk.metrics import Counter
        from opentelemetry.sdk.metrics.export import AggregationTemporality

        deltas = {kind: AggregationTemporality.DELTA for kind in (Counter, Histogram)}

        def run(server, exports):
            exporter = OverHttp(endpoint=f"{server.http}/api/v1/otlp/v1/metrics", preferred_temporality=deltas)
            reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
            view = View(instrument_type=Histogram, instrument_name="size", aggregation=ExponentialBucketHistogramAggregation())
            provider = MeterProvider([reader], resource=Resource({"service.name": "delta"}), views=[view])
            meter = provider.get_meter("test")
            requests, latency = meter.create_counter("requests"), meter.create_histogram("latency")
            size = meter.create_histogram("size")
            for amount in exports:
                requests.add(amount)
                latency.record(amount)
                size.record(amount)
                self.assertTrue(provider.force_flush())
            provider.shutdown()

        def value(server, query):
            code, answer = ask(server.http, "query", query=query)
            self.assertEqual((code, len(answer["data"]["result"])), (200, 1), (query, answer))
            return float(answer["data"]["result"][0]["value"][1])

        with Server(binary(), http="127.0.0.1:0", options=["--prometheus-otlp-deltas=cumulate"]) as server:
            run(server, [3, 4, 5])
            run(server, [30])
            self.assertEqual(value(server, "requests_total"), 42)
            self.assertEqual(value(server, "latency_sum"), 42)
            self.assertEqual(value(server, 'latency_bucket{le="10"}'), 3)
            self.assertEqual(value(server, "latency_count"), 4)
            self.assertEqual(value(server, "histogram_count(size)"), 4)
            self.assertEqual(value(server, "histogram_sum(size)"), 42)
        with Server(binary(), http="127.0.0.1:0", options=["--prometheus-otlp-deltas=keep"]) as server:
            run(server, [3, 4, 5])
            self.assertEqual(value(server, "sum_over_time(requests_total[1m])"), 12)
            self.assertEqual(value(server, "histogram_sum(sum_over_time(size[1m]))"), 12)

    def test_who_is_not_known_is_refused(self):
        with Server(binary(), http="127.0.0.1:0", token="t") as server:
            self.assertEqual(get(f"{server.http}/api/v1/labels")[0], 401)
            exporter = OverGrpc(endpoint=server.url, insecure=True, timeout=2)
            reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
            provider = MeterProvider([reader])
            provider.get_meter("test").create_counter("refused").add(1)
            with self.assertLogs("opentelemetry", "ERROR") as logs:
                provider.force_flush()
            self.assertIn("UNAUTHENTICATED", "\n".join(logs.output))
            provider.shutdown()
            # With the token, the same call is taken.
            known = OverGrpc(endpoint=server.url, insecure=True, headers={"authorization": f"Bearer {server.token}"})
            provider = MeterProvider([PeriodicExportingMetricReader(known, export_interval_millis=3_600_000)])
            provider.get_meter("test").create_counter("taken").add(1)
            self.assertTrue(provider.force_flush())
            provider.shutdown()


if __name__ == "__main__":
    unittest.main()
