"""A page from the disk in a headless Chromium: its keys, its scripts, its complaints."""

import time
from pathlib import Path
from typing import Any

from easyvideor1.rewards import browser

WAIT_S = 30.0
SCRIPTS_OFF = "--blink-settings=scriptEnabled=false"


class ChromiumPage(browser._Browser):
    """The browser of the rewards, with scripts; `close` ends it.

    Attributes:
        problems: exceptions and errors of the console, as texts.
        requested: addresses that the page asked for, `data:` apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.requested: list[str] = []
        self._session = ""

    def open(self, path: Path, *, dark: bool = False) -> None:
        """Load a file as a user's browser does who prefers dark or light pages."""
        self._start()
        end = time.monotonic() + WAIT_S
        size = {"width": 1200, "height": 800}
        target = self._ask("Target.createTarget", end, url="about:blank", **size)["targetId"]
        attached = self._ask("Target.attachToTarget", end, targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable", end, self._session)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", end, self._session, features=[scheme])
        self._ask("Emulation.setFocusEmulationEnabled", end, self._session, enabled=True)
        self._ask("Page.navigate", end, self._session, url=path.as_uri())
        while not self._is_loaded():
            assert time.monotonic() < end, f"{path} does not load"
            time.sleep(0.05)

    def _is_loaded(self) -> bool:
        try:
            return self.run("location.protocol + document.readyState") == "file:complete"
        except ValueError:  # between two documents there is none to ask
            return False

    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript, or that of its promise."""
        end = time.monotonic() + WAIT_S
        answer = self._ask(
            "Runtime.evaluate",
            end,
            self._session,
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press and release keys, by their names or the letter they write."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {}
            for kind, more in (("keyDown", text), ("keyUp", {})):
                end = time.monotonic() + WAIT_S
                self._ask("Input.dispatchKeyEvent", end, self._session, type=kind, key=key, **more)

    def _launch(self, command: list[str]) -> None:
        super()._launch([part for part in command if part != SCRIPTS_OFF])

    def _notice(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.problems.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                url = params["request"]["url"]
                self.requested += [] if url.startswith("data:") else [url]
        super()._notice(message)
