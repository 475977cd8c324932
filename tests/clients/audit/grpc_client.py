"""A client of `ropewalk.v1.Transactions`, made from the proto files of the repository.

protoc describes the messages, and no code is generated: its package `ropewalk` would be that of the Python client.
"""

import tempfile
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, message_factory
from google.rpc import status_pb2
from grpc_tools import protoc
from place import PATIENCE

PROTO = Path(__file__).resolve().parents[3] / "crates" / "wire" / "grpc" / "proto"
FILES = ["ropewalk/events/v1/events.proto", "ropewalk/v1/transactions.proto"]
PACKAGE = "ropewalk.v1"
#: A killed server is tried again every 100 ms (the minimum is the time of one attempt), each client has its separate
#: connection, and a page of events may be large.
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
]


def _messages():
    """The classes of all messages, by their full names."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-proto-") as place:
        described = Path(place) / "descriptors"
        command = ["protoc", f"--proto_path={PROTO}", f"--descriptor_set_out={described}", "--include_imports", *FILES]
        if protoc.main(command) != 0:
            raise RuntimeError(f"protoc does not compile {FILES}")
        files = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file
    return message_factory.GetMessages(files)


MESSAGES = _messages()


def sqlstate(error):
    """The SQLSTATE in the details of a failed call; an empty text without one."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    for detail in status_pb2.Status.FromString(details).details:
        if detail.type_url.endswith(f"/{PACKAGE}.TransactionError"):
            return MESSAGES[f"{PACKAGE}.TransactionError"].FromString(detail.value).sqlstate
    return ""


def rows(result):
    """The rows of the result of a statement."""
    return [[_value(value) for value in row.values] for row in result.sql.rows]


def _value(value):
    kind = value.WhichOneof("kind")
    return getattr(value, kind) if kind else None


class Transactions:
    """The calls of the service. Each waits for the server, and raises `grpc.RpcError`."""

    def __init__(self, address):
        self._channel = grpc.insecure_channel(address, options=OPTIONS)

    def commit(self, operations, **fields):
        return self._call("Commit", "CommitResponse", operations=operations, **fields)

    def begin(self, **fields):
        return self._call("Begin", "BeginResponse", **fields)

    def execute(self, transaction, operations):
        return self._call("Execute", "ExecuteResponse", transaction=transaction, operations=operations).results

    def rollback(self, transaction):
        self._call("Rollback", "RollbackResponse", transaction=transaction)

    def _call(self, method, response, **fields):
        call = self._channel.unary_unary(
            f"/{PACKAGE}.Transactions/{method}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=MESSAGES[f"{PACKAGE}.{response}"].FromString,
        )
        return call(MESSAGES[f"{PACKAGE}.{method}Request"](**fields), timeout=PATIENCE, wait_for_ready=True)

    def close(self):
        self._channel.close()
