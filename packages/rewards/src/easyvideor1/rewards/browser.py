"""Web pages as pixels, by a headless Chromium that reaches nothing: no script, network or file.

One browser for each process, started on use and driven over two pipes (`--remote-debugging-pipe`),
so that no port is open; when this process ends, the pipes close, and the browser with them. Each
page gets a context of its own. What a page asks for is refused, `data:` addresses apart.
"""

import atexit
import base64
import contextlib
import fcntl
import io
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.rewards.registry import ScorerUnavailableError
from easyvideor1.rewards.rendering import DrawingError

if TYPE_CHECKING:
    import numpy as np

WIDTH, HEIGHT = 800, 600
"""Of the part of a page that is seen, in pixels."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
START_TIMEOUT_S = 60.0
RENDER_TIMEOUT_S = 20.0
LOAD_TIMEOUT_S = 2.0
"""For what a page holds itself, such as `data:` images; then it is taken as it is."""

_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--blink-settings=scriptEnabled=false",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
    "--disable-dev-shm-usage", "--disable-extensions", "--disable-gpu", "--disable-sync",
    "--force-color-profile=srgb", "--force-device-scale-factor=1", "--hide-scrollbars",
    "--font-render-hinting=none", "--no-first-run", "--password-store=basic", "--mute-audio",
)  # fmt: skip
_EXEC = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
"""A program of its own, since the pipes must be 3 and 4 and no code may run in our fork."""
_FREE = 10
_PROFILE = re.compile(r"evr-browser-(\d+)-")


def find_program() -> str | None:
    """Path of the Chromium that is installed; None if there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@lru_cache(maxsize=16)
def draw_page(html: str) -> "np.ndarray":
    """What is seen of a page at the top, [HEIGHT, WIDTH, 3] uint8.

    Raises:
        DrawingError: Chromium does not render it in time.
        ScorerUnavailableError: no Chromium starts here.
    """
    import numpy as np
    from PIL import Image

    png = _browser.screenshot(html)
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


class _Browser:
    """The browser of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._profile = ""
        self._writer = self._reader = -1
        self._rest = b""
        self._number = 0
        self._loaded: set[str] = set()
        """Pages, by session, whose load event came."""

    def screenshot(self, html: str) -> bytes:
        """A PNG; see `draw_page`."""
        with self._lock:
            self._start()
            end = time.monotonic() + RENDER_TIMEOUT_S
            try:
                return self._render(html, end)
            except (OSError, KeyError, ValueError) as error:
                self.close()
                raise DrawingError(f"Chromium does not render it: {error}") from None

    def _render(self, html: str, end: float) -> bytes:
        context = self._ask("Target.createBrowserContext", end)["browserContextId"]
        target = self._ask(
            "Target.createTarget", end, url="about:blank", browserContextId=context,
            width=WIDTH, height=HEIGHT,
        )["targetId"]  # fmt: skip
        page = self._ask("Target.attachToTarget", end, targetId=target, flatten=True)["sessionId"]
        for method, options in (
            ("Emulation.setScriptExecutionDisabled", {"value": True}),
            ("Emulation.setDeviceMetricsOverride",
             {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}),
            ("Fetch.enable", {"patterns": [{"urlPattern": "*"}]}),
            ("Page.enable", {}),
        ):  # fmt: skip
            self._ask(method, end, page, **options)
        frame = self._ask("Page.getFrameTree", end, page)["frameTree"]["frame"]["id"]
        self._ask("Page.setDocumentContent", end, page, frameId=frame, html=html)
        self._await_load(page, min(end, time.monotonic() + LOAD_TIMEOUT_S))
        image = self._ask("Page.captureScreenshot", end, page, format="png")["data"]
        self._ask("Target.disposeBrowserContext", end, browserContextId=context)
        return base64.b64decode(image)

    def _await_load(self, page: str, end: float) -> None:
        with contextlib.suppress(TimeoutError):
            while page not in self._loaded:
                self._notice(self._receive(end))

    def _ask(self, method: str, end: float, session: str = "", **options: Any) -> dict[str, Any]:
        """The result of a command.

        Raises:
            OSError: the browser has ended, or the time is over.
            ValueError: the browser refuses.
        """
        number = self._send(method, session, options)
        while True:
            message = self._receive(end)
            self._notice(message)
            if message.get("id") == number:
                if "error" in message:
                    raise ValueError(f"{method}: {message['error'].get('message')}")
                return message["result"]

    def _notice(self, message: dict[str, Any]) -> None:
        """Fail what a page asks for, and note that it is there."""
        if message.get("method") == "Page.loadEventFired":
            self._loaded.add(message["sessionId"])
        if message.get("method") == "Fetch.requestPaused":
            options = {
                "requestId": message["params"]["requestId"],
                "errorReason": "BlockedByClient",
            }
            self._send("Fetch.failRequest", message["sessionId"], options)

    def _send(self, method: str, session: str, options: dict[str, Any]) -> int:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": options}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writer, data) :]
        return self._number

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._reader], [], [], left)
            if not ready:
                raise TimeoutError("it takes too long")
            part = os.read(self._reader, 1 << 20)
            if not part:
                raise OSError("it has ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        program = find_program()
        if program is None:
            raise ScorerUnavailableError("no Chromium is installed")
        _clear_profiles()
        # Its own sandbox takes another user than root, and user namespaces.
        attempts = [["--no-sandbox"]] if os.geteuid() == 0 else [[], ["--no-sandbox"]]
        reason = ""
        for extra in attempts:
            self._launch([program, *_FLAGS, *extra])
            try:
                self._ask("Browser.getVersion", time.monotonic() + START_TIMEOUT_S)
                return
            except OSError as error:
                self.close()
                reason = str(error)
        raise ScorerUnavailableError(f"{program} does not start: {reason}")

    def _launch(self, command: list[str]) -> None:
        self._profile = tempfile.mkdtemp(prefix=f"evr-browser-{os.getpid()}-")
        commands, self._writer = os.pipe()
        self._reader, replies = os.pipe()
        given = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FREE) for end in (commands, replies)]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _EXEC, *map(str, given), *command,
             f"--user-data-dir={self._profile}"],
            pass_fds=given,
            env={"HOME": self._profile, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        for end in (commands, replies, *given):
            os.close(end)
        self._rest = b""

    def close(self) -> None:
        """End the browser with all its processes."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            os.close(self._writer)
            os.close(self._reader)
            shutil.rmtree(self._profile, ignore_errors=True)
        self._process = None

    def forget(self) -> None:
        """In a fork of this process: the browser belongs to the parent."""
        self._lock = threading.Lock()
        if self._process is not None:
            os.close(self._writer)
            os.close(self._reader)
        self._process = None


def _clear_profiles() -> None:
    """Remove the profiles of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).iterdir():
        match = _PROFILE.match(folder.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            shutil.rmtree(folder, ignore_errors=True)


_browser = _Browser()
os.register_at_fork(after_in_child=_browser.forget)
atexit.register(_browser.close)
