"""A plain gRPC client on an agent's Unix socket, without options.

Usage: grpcio.py SOCKET PROTOCOL HOST. Messages are encoded by hand: no generated code is needed.
"""

import queue
import sys

import grpc

socket, protocol, host = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()


def field(number, content):
    """A length-delimited field of a protobuf message."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def same(message):
    return message


channel = grpc.insecure_channel("unix:" + socket)
status = channel.unary_unary(
    "/ftb.v1.Admin/Status", request_serializer=same, response_deserializer=same
)
for _ in range(3):
    reply = status(b"", timeout=60)
    assert field(2, host) in reply, reply

attach = channel.stream_stream(
    "/ftb.v1.Clients/Attach", request_serializer=same, response_deserializer=same
)
requests = queue.Queue()
hello = bytes([1 << 3, protocol]) + field(2, b"python")
requests.put(field(1, hello))
answers = attach(iter(requests.get, None), timeout=60)
welcome = next(answers)
assert welcome[0] == 1 << 3 | 2, welcome
assert field(3, host) in welcome, welcome
subscribe = bytes([1 << 3, 7]) + field(2, b"event_space=site.test")
requests.put(field(3, subscribe))
answer = next(answers)
assert answer[0] == 3 << 3 | 2, answer
requests.put(None)
print("attached and subscribed")
