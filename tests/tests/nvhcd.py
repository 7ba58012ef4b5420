"""What the health check of NVIDIA's Resiliency Extension says of an agent's host, as JSON.

Usage: nvhcd.py SOCKET FOLDER. FOLDER has the unpacked wheel. `healthy` is what its client decides;
the rest is the answer that it has decided by.
"""

import json
import sys

socket, folder = sys.argv[1:]
sys.path.insert(0, folder)

import grpc
from nvidia_resiliency_ext.shared_utils.health_check import NodeHealthCheck
from nvidia_resiliency_ext.shared_utils.proto import nvhcd_pb2, nvhcd_pb2_grpc

healthy = NodeHealthCheck(socket_path=socket)()
with grpc.insecure_channel("unix://" + socket) as channel:
    service = nvhcd_pb2_grpc.HealthCheckServiceStub(channel)
    request = nvhcd_pb2.HealthCheckRequest(args=["--no-slurm", "--group", "prolog"])
    answer = service.RunHealthCheck(request, timeout=60)
print(
    json.dumps(
        {
            "healthy": healthy,
            "success": answer.success,
            "exit_code": answer.exit_code,
            "error": answer.error,
            **json.loads(answer.output),
        }
    )
)
