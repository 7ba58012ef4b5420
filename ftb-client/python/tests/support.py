"""An agent of its own for each test that wants one."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import ftb

CONFIG = """
cluster = "python"
members = "one"
host = "one"
listen = "127.0.0.1:0"
insecure = true
threads = 1
socket = "{socket}"
"""

#: Longest wait for something that must come: a deadline for a hang, no measure.
LONG = 300


class AgentTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ftb-python-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.socket = str(self.dir / "agent.sock")
        self.config = self.dir / "agent.toml"
        self.config.write_text(CONFIG.format(socket=self.socket))
        self.agent = None
        self.addCleanup(self.stop_agent)
        # The end of a `with` block gives up sooner than a slow machine may need.
        for client in (ftb.Client, ftb.AsyncClient):
            patience = mock.patch.object(client.close, "__defaults__", (LONG,))
            patience.start()
            self.addCleanup(patience.stop)

    def start_agent(self):
        log = open(self.dir / "agent.log", "ab")
        self.addCleanup(log.close)
        self.agent = subprocess.Popen(
            [os.environ["FTB_AGENT_BIN"], "--config", str(self.config)], stderr=log
        )

    def stop_agent(self):
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()
            self.agent = None

    def script(self, text, *arguments):
        """A program of its own, with its output to read from."""
        environment = dict(os.environ, FTB_AGENT_SOCKET=self.socket)
        process = subprocess.Popen(
            [sys.executable, "-c", text, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.kill)
        return process
