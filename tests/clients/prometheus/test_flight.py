"""pyarrow, as it is published, puts samples by columns into `ropewalk serve` through Arrow Flight."""

import json
import sys
import unittest
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.ipc  # noqa: F401

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from peer import ask  # noqa: E402
from servers import Server, binary  # noqa: E402

SCHEMA = pa.schema([("timestamp", pa.timestamp("ns")), ("value", pa.float64()), ("pod", pa.dictionary(pa.int32(), pa.utf8()))])


def table(rows, first=0):
    """Rows of two pods in turn, a millisecond apart."""
    times = pa.array([(first + row) * 1_000_000 for row in range(rows)], pa.timestamp("ns"))
    pods = pa.array([f"p{row % 2}" for row in range(rows)]).dictionary_encode()
    return pa.table([times, pa.array([float(row) for row in range(rows)]), pods], schema=SCHEMA)


def path(metric):
    return flight.FlightDescriptor.for_path(metric)


class Flight(unittest.TestCase):
    def samples(self, server, metric):
        code, answer = ask(server.http, "query", query=f"{metric}[1h]", time="3600")
        self.assertEqual(code, 200, answer)
        return sum(len(series["values"]) for series in answer["data"]["result"])

    def test_each_batch_is_counted_once_it_is_there(self):
        with Server(binary(), http="127.0.0.1:0") as server, flight.connect(server.url.replace("http", "grpc")) as client:
            writer, answers = client.do_put(path("cpu"), SCHEMA)
            for number in range(1, 6):
                for batch in table(1000, number * 1000).to_batches():
                    writer.write_batch(batch)
                counts = json.loads(answers.read().to_pybytes())
                self.assertEqual(counts, {"batches": number, "samples": number * 1000, "rejected": 0})
                self.assertEqual(self.samples(server, "cpu"), number * 1000)
            writer.close()
            code, answer = ask(server.http, "query", query='last_over_time(cpu{pod="p1"}[1h])', time="3600")
            self.assertEqual(answer["data"]["result"][0]["value"][1], "999")

    def test_who_does_not_read_the_answers_is_not_held_up(self):
        with Server(binary(), http="127.0.0.1:0") as server, flight.connect(server.url.replace("http", "grpc")) as client:
            writer, answers = client.do_put(path("many"), SCHEMA)
            for number in range(1, 2001):
                for batch in table(10, number * 10).to_batches():
                    writer.write_batch(batch)
            writer.done_writing()
            last = None
            while (answer := answers.read()) is not None:
                last = json.loads(answer.to_pybytes())
            writer.close()
            self.assertEqual(last, {"batches": 2000, "samples": 20_000, "rejected": 0})
            self.assertEqual(self.samples(server, "many"), 20_000)

    def test_tags_of_each_row_as_mytsdb_has_them(self):
        schema = pa.schema([("timestamp", pa.int64()), ("value", pa.float64()), ("tags", pa.map_(pa.utf8(), pa.utf8()))])
        tags = [[("pod", f"p{row % 2}"), ("service", "k8s")] for row in range(2000)]
        columns = [pa.array(range(1, 2001), pa.int64()), pa.array([1.5] * 2000), pa.array(tags, schema.field("tags").type)]
        with Server(binary(), http="127.0.0.1:0") as server, flight.connect(server.url.replace("http", "grpc")) as client:
            writer, answers = client.do_put(path("mixed_metrics"), schema)
            writer.write_table(pa.table(columns, schema=schema))
            self.assertEqual(json.loads(answers.read().to_pybytes())["samples"], 2000)
            writer.write_batch(pa.record_batch(columns, schema=schema).slice(1500, 10))
            self.assertEqual(json.loads(answers.read().to_pybytes())["rejected"], 0)
            writer.close()
            self.assertEqual(self.samples(server, 'mixed_metrics{pod="p1",service="k8s"}'), 1000)
            self.assertEqual(self.samples(server, "mixed_metrics"), 2000)

    def test_compressed_buffers(self):
        for codec in ("lz4", "zstd"):
            options = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression=codec))
            with Server(binary(), http="127.0.0.1:0") as server, flight.connect(server.url.replace("http", "grpc")) as client:
                writer, answers = client.do_put(path(codec), SCHEMA, options)
                for number in range(1, 4):
                    for batch in table(5000, number * 5000).to_batches():
                        writer.write_batch(batch)
                    counts = json.loads(answers.read().to_pybytes())
                    self.assertEqual(counts, {"batches": number, "samples": number * 5000, "rejected": 0})
                writer.close()
                self.assertEqual(self.samples(server, codec), 15_000)

    def test_what_is_wrong_is_an_error_of_arrow(self):
        with Server(binary(), http="127.0.0.1:0") as server, flight.connect(server.url.replace("http", "grpc")) as client:
            schema = pa.schema([("timestamp", pa.int64()), ("value", pa.float64())])
            with self.assertRaisesRegex(pa.ArrowInvalid, "metadata `unit`"):
                writer, _ = client.do_put(path("x"), schema)
                writer.write_table(pa.table([[1], [1.0]], schema=schema))
                writer.close()
            with self.assertRaises(NotImplementedError):
                list(client.list_flights())

    def test_who_is_not_known_is_refused(self):
        with Server(binary(), http="127.0.0.1:0", token="t") as server, flight.connect(server.url.replace("http", "grpc")) as client:
            with self.assertRaises(flight.FlightUnauthenticatedError):
                writer, _ = client.do_put(path("x"), SCHEMA)
                writer.write_table(table(10))
                writer.close()
            options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {server.token}".encode())])
            writer, answers = client.do_put(path("x"), SCHEMA, options)
            writer.write_table(table(10))
            self.assertEqual(json.loads(answers.read().to_pybytes())["samples"], 10)
            writer.close()


if __name__ == "__main__":
    unittest.main()
