"""A scripted OpenAI-compatible server on loopback: each request is answered by a function."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from easyvideor1.rewards.config import JudgeConfig

Reply = str | int | tuple[int, dict[str, str]] | dict[str, Any]
"""A reply's content, a status, a status with headers, or a whole body."""


@dataclass
class ScriptedServer:
    """What was asked, and where."""

    base_url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of chat requests, in order of arrival."""
    keys: list[str] = field(default_factory=list)
    most_at_once: int = 0

    @property
    def prompts(self) -> list[str]:
        return [request["messages"][0]["content"] for request in self.requests]

    def config(self, **settings: Any) -> JudgeConfig:
        """Settings of a judge at this server, without a cache."""
        given: dict[str, Any] = {"base_url": self.base_url, "model": "scripted", "cache": None}
        return JudgeConfig(**(given | settings))


@contextmanager
def scripted_server(script: Callable[[str], Reply]) -> Generator[ScriptedServer]:
    """Serve while the block runs; `script` gets the prompt of each chat request."""
    server = ScriptedServer()
    lock, running = threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                server.requests.append(body)
                server.keys.append(self.headers.get("Authorization", ""))
                running[0] += 1
                server.most_at_once = max(server.most_at_once, running[0])
            reply = script(body["messages"][0]["content"])
            with lock:
                running[0] -= 1
            if isinstance(reply, str):
                self._send(200, completion(reply))
            elif isinstance(reply, dict):
                self._send(200, reply)
            else:
                status, headers = (reply, {}) if isinstance(reply, int) else reply
                self._send(status, {"error": {"message": f"scripted {status}"}}, headers)

        def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            sent = {"Content-Type": "application/json", "Content-Length": str(len(data))}
            for name, value in (sent | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # How often it looks whether it is to end; half a second by default.
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    server.base_url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def completion(content: str | None, finish_reason: str = "stop") -> dict[str, Any]:
    """The body of a chat completion."""
    message = {"role": "assistant", "content": content}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
    }
