"""A collector of traces: reads each request with the official packages of OTLP, and keeps it.

The first request is answered with 503: it must come again. Arguments: address, port, file to keep
requests in, and for https a file with certificate and key.
"""

import base64
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest as Protobuf,
)
from opentelemetry.proto_json.collector.trace.v1.trace_service import (
    ExportTraceServiceRequest as Json,
)

IDS = ("traceId", "spanId", "parentSpanId")


def with_base64(value):
    """Protobuf's own mapping has bytes in base64; OTLP has ids in hex."""
    if isinstance(value, list):
        return [with_base64(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode() if key in IDS else with_base64(item)
        for key, item in value.items()
    }


def check(body):
    read = json.loads(body)
    message = json_format.ParseDict(with_base64(read), Protobuf(), ignore_unknown_fields=False)
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
                assert any(span.trace_id) and any(span.span_id), span
                assert len(span.parent_span_id) in (0, 8), span
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
    # An empty status says the same as none.
    again = Protobuf()
    json_format.ParseDict(with_base64(Json.from_json(body).to_dict()), again)
    assert again == message, body


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    refused = 1

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = 200
        try:
            assert self.path == "/v1/traces", self.path
            assert self.headers["content-type"] == "application/json", self.headers
            check(body)
            if Collector.refused > 0:
                Collector.refused -= 1
                status = 503
            else:
                with open(sys.argv[3], "ab") as kept:
                    kept.write(body + b"\n")
        except Exception as error:
            print(repr(error), file=sys.stderr, flush=True)
            status = 400
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Collector)
if len(sys.argv) > 4:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[4])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
