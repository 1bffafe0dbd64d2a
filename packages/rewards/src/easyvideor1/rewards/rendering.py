"""Drawings as pixels: SVG rendered by resvg on a white square, and two images compared.

A drawing is text that a model wrote. It is parsed without entities and cut to what needs nothing
outside it before resvg sees it, and drawn by a child process that can hang or crash alone.
"""

import atexit
import io
import json
import os
import re
import select
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.rewards import render_child
from easyvideor1.rewards.registry import ScorerUnavailableError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    import numpy as np

CANVAS = 256
"""Side of the square that a drawing is scaled to fit, in pixels."""
MAX_SVG_CHARS = 200_000
MAX_ELEMENTS = 5_000
MAX_DEPTH = 64
"""Of elements within another; resvg recurses, and a thousand levels end its process."""
START_TIMEOUT_S = 60.0
RENDER_TIMEOUT_S = 30.0
"""On the clock, for a machine with other work; `render_child.SECONDS` is the limit that counts."""

SVG = "{http://www.w3.org/2000/svg}"
_HREFS = ("href", "{http://www.w3.org/1999/xlink}href")
_NOT_DRAWN = ("image", "feImage", "script", "foreignObject")
"""What may refer to files, addresses or other programs."""


class DrawingError(ValueError):
    """A drawing that cannot be rendered; the text says why."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A rendered SVG.

    Example:
        Drawing(pixels=[256, 256, 3] uint8, parts={"svg": 1, "rect": 2, "rect width": 2, …})
    """

    pixels: "np.ndarray"
    parts: Counter[str]
    """How often each element, and each attribute of an element, occurs."""


@lru_cache(maxsize=64)
def draw_svg(text: str) -> Drawing:
    """Parse and render an SVG.

    Raises:
        DrawingError: it cannot be rendered.
        ScorerUnavailableError: the renderer does not start.
    """
    root = parse_svg(text)
    parts = Counter(_parts(root))
    fonts = any(element.tag == f"{SVG}text" for element in root.iter())
    return Drawing(_pixels(_renderer.render(_drawable(root), fonts)), parts)


def parse_svg(text: str) -> "Element":
    """The root element of an SVG, all of whose elements have their namespace.

    Raises:
        DrawingError: it is no SVG, has entities, or is too large.
    """
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    if len(text) > MAX_SVG_CHARS:
        raise DrawingError(f"more than {MAX_SVG_CHARS} characters")
    if "xlink:" in text and "xmlns:xlink" not in text:
        text = text.replace("<svg", '<svg xmlns:xlink="http://www.w3.org/1999/xlink"', 1)
    parser = DefusedXMLParser(target=_builder())
    try:
        parser.feed(text)
        root = parser.close()
    except DefusedXmlException as error:
        raise DrawingError(f"refused: {type(error).__name__}") from None
    except (ParseError, UnicodeError) as error:
        raise DrawingError(f"no XML: {error}") from None
    for element in root.iter():
        if not element.tag.startswith("{"):
            element.tag = SVG + element.tag
    if root.tag != f"{SVG}svg":
        raise DrawingError("the outermost element is not svg")
    return root


def _builder() -> Any:
    from xml.etree.ElementTree import TreeBuilder

    class Bounded(TreeBuilder):
        """Stops at a document that nobody would draw."""

        depth = elements = 0

        def start(self, tag: str, attrs: dict[str, str]) -> "Element":
            self.depth += 1
            self.elements += 1
            if self.depth > MAX_DEPTH or self.elements > MAX_ELEMENTS:
                raise DrawingError(
                    f"more than {MAX_ELEMENTS} elements, or nested deeper than {MAX_DEPTH}"
                )
            return super().start(tag, attrs)

        def end(self, tag: str) -> "Element":
            self.depth -= 1
            return super().end(tag)

    return Bounded()


def _parts(root: "Element") -> list[str]:
    names: list[str] = []
    for element in root.iter():
        name = _local(element.tag)
        names += [name, *(f"{name} {_local(attribute)}" for attribute in element.attrib)]
    return names


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _drawable(root: "Element") -> str:
    """The drawing with nothing that refers outside it, scaled to the canvas; changes `root`."""
    from xml.etree.ElementTree import tostring

    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in _NOT_DRAWN:
                parent.remove(child)
    for element in root.iter():
        for name in _HREFS:
            if not element.get(name, "#").strip().startswith("#"):
                del element.attrib[name]
    if "viewBox" not in root.attrib:
        width, height = (_pixels_of(root.get(name)) for name in ("width", "height"))
        if width and height:
            root.set("viewBox", f"0 0 {width:g} {height:g}")
    if "viewBox" in root.attrib:  # else resvg takes the box around all that is drawn
        root.set("width", str(CANVAS))
        root.set("height", str(CANVAS))
    return tostring(root, encoding="unicode")


_LENGTH = re.compile(
    r"\s*\+?(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*(px|pt|pc|mm|cm|in|q|em|ex)?\s*", re.IGNORECASE
)
_PIXELS_IN = {
    "px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 96 / 2.54, "mm": 9.6 / 2.54,
    "q": 2.4 / 2.54, "em": 16.0, "ex": 8.0,
}  # fmt: skip


def _pixels_of(length: str | None) -> float | None:
    """A length of CSS in pixels; None for a percentage or anything else."""
    match = _LENGTH.fullmatch(length or "")
    return float(match[1]) * _PIXELS_IN[(match[2] or "px").lower()] if match else None


def _pixels(png: bytes) -> "np.ndarray":
    """The image in the middle of the white canvas, [CANVAS, CANVAS, 3]."""
    import numpy as np
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.thumbnail((CANVAS, CANVAS))
    canvas = Image.new("RGB", (CANVAS, CANVAS), "white")
    canvas.paste(image, ((CANVAS - image.width) // 2, (CANVAS - image.height) // 2))
    return np.asarray(canvas)


def image_similarity(one: "np.ndarray", other: "np.ndarray") -> float:
    """SSIM of two images on white, 0 to 1: the mean over the pixels where one of them shows.

    On the blank rest any two drawings agree, so that an empty one would seem similar to all. Wang
    et al. 2004, as scikit-image computes it, per colour, with windows of 7 by 7 pixels; but with
    K1 = 0.3 in place of 0.01, which would find (255, 0, 0) and (224, 16, 16) as far apart as red
    and blue.
    """
    import numpy as np
    from skimage.metrics import structural_similarity

    shows = ((one != 255) | (other != 255)).any(axis=-1)
    if not shows.any():
        return 1.0
    _, similarity = structural_similarity(
        one, other, channel_axis=-1, data_range=255, full=True, K1=0.3
    )
    return float(np.clip(similarity[shows].mean(), 0.0, 1.0))


def overlap(one: Counter[Any], other: Counter[Any]) -> float:
    """F1 of two multisets, 0 to 1: twice what they share over what they hold; 1 for two empty."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0


class _Renderer:
    """The child process of this process; started on use, and again after a drawing ended it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, svg: str, fonts: bool) -> bytes:
        """A PNG.

        Raises:
            DrawingError: none comes out.
            ScorerUnavailableError: the child does not start.
        """
        request = json.dumps({"svg": svg, "fonts": fonts}).encode()
        with self._lock:
            process = self._started()
            try:
                _write(process, request)
                reply = _read(process, RENDER_TIMEOUT_S)
            except OSError:
                self.close()
                reason = f"resvg fails on it, or takes over {render_child.SECONDS} s"
                raise DrawingError(reason) from None
        if reply[:1] != b"+":
            raise DrawingError(f"resvg: {reply[1:].decode(errors='replace')}")
        return reply[1:]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(render_child.__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                _write(self._process, json.dumps({"svg": _EMPTY, "fonts": False}).encode())
                _read(self._process, START_TIMEOUT_S)
            except OSError as error:
                self.close()
                reason = f"the renderer of SVG does not start: {error}"
                raise ScorerUnavailableError(reason) from None
        return self._process

    def close(self) -> None:
        """End the child, whatever it draws."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
        self._process = None

    def forget(self) -> None:
        """In a fork of this process: the child belongs to the parent."""
        self._lock = threading.Lock()
        if self._process is not None:
            # It ends when nobody can ask it any more.
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
        self._process = None


_EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'


def _write(process: subprocess.Popen[bytes], request: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(struct.pack("<I", len(request)) + request)
    process.stdin.flush()


def _read(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """A reply.

    Raises:
        OSError: the process has ended, or the time is over.
    """
    assert process.stdout is not None
    descriptor, end = process.stdout.fileno(), time.monotonic() + timeout_s
    data, wanted = b"", 4
    while len(data) < wanted:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        part = os.read(descriptor, 1 << 16) if ready else b""
        if not part:
            raise OSError("it has ended" if ready else f"no reply within {timeout_s:g} s")
        data += part
        if len(data) >= 4:
            wanted = 4 + struct.unpack("<I", data[:4])[0]
    return data[4:]


_renderer = _Renderer()
os.register_at_fork(after_in_child=_renderer.forget)
atexit.register(_renderer.close)
