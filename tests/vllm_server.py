"""vLLM's own OpenAI server on loopback, with a tiny model on whatever this host has."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from easyvideor1.schema import environment

START_TIMEOUT_S = 600


@contextmanager
def serving(model_path: str, log: Path, name: str) -> Generator[str]:
    """The base URL of a server that serves the model under `name` while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--model", model_path, "--served-model-name", name,
        "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", "4096", "--max-num-seqs", "8", "--dtype", "float32",
        "--enforce-eager", "--kv-cache-memory-bytes", str(64 * 1024**2),
        # A seeded request whose prefill is cut in two crashes the CPU engine.
        "--no-enable-chunked-prefill", "--limit-mm-per-prompt", '{"image": 64}',
        # A random model would fill every place where white space is allowed with it.
        "--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}',
    ]  # fmt: skip
    variables = os.environ | environment.worker_environment()
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_until_healthy(url: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                assert reply.status == 200
                return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    raise AssertionError(log.read_text()[-3000:])
