"""A web page: accuracy is the mean of how alike two pages are built and what they say.

Build: F1 of the multisets of the paths of tags from the root to each element (`body > p > b`).
Words: F1 of the multisets of tokens of the visible text, with the tokenizer of open_ended; the text
of scripts, styles, templates and of the head is not visible. Both are 0 to 1; the same page has 1.

With `reward.drawing.browser` both are also seen in a headless Chromium, 800 by 600 pixels, without
scripts or anything from elsewhere. Then accuracy is 0.3 times build, plus 0.3 times words, plus 0.4
times SSIM (`rendering.image_similarity`).
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from easyvideor1.rewards.browser import draw_page, find_program
from easyvideor1.rewards.code_blocks import last_block
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import GoldError, Task, register_task, require_gold
from easyvideor1.rewards.rendering import DrawingError, image_similarity, overlap
from easyvideor1.rewards.tasks.open_ended import Tokenizer
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample

MAX_CHARS = 100_000
"""The parser's time can grow with the square of the length."""
BUILD_WEIGHT, WORDS_WEIGHT, LOOK_WEIGHT = 0.3, 0.3, 0.4
"""With a browser; without one, build and words count alike."""
START_S = 30.0
"""For a worker's browser to start, beside the deadline."""

_ELEMENT = re.compile(r"<[a-z][^<>]*>", re.IGNORECASE)
_DOCUMENT = re.compile(r"<(?:!doctype\s+html|html)\b[^<>]*>", re.IGNORECASE)
_DOCUMENT_END = re.compile(r"</html\s*>", re.IGNORECASE)
_LANGUAGES = ("", "html", "htm", "xhtml", "xml", "html5")
_ALWAYS_THERE = ("html", "head", "body")
"""The parser adds them where they are missing."""
_NOT_SEEN = ("head", "script", "style", "template", "noscript", "title")


@dataclass(frozen=True, slots=True)
class Page:
    """What a page consists of."""

    paths: Counter[int]
    """How often each path of tags from the root occurs; equal paths have equal numbers."""
    words: Counter[str]


@register_task(ProblemType.html_code)
class HtmlCode(Task[str]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        return "Reason briefly, then give the HTML code, and nothing else, in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> str:
        html = read_html(answer)
        if len(html) > MAX_CHARS:
            raise NoAnswer(f"more than {MAX_CHARS} characters")
        if config.drawing.browser:
            try:
                draw_page(html)
            except DrawingError as error:
                raise NoAnswer(str(error)) from None
        return html

    def score(self, value: str, sample: Sample, config: RewardConfig) -> float:
        gold = _gold(sample)
        page, wanted = read_page(value), read_page(gold)
        build, words = overlap(page.paths, wanted.paths), overlap(page.words, wanted.words)
        if not config.drawing.browser:
            return (build + words) / 2
        try:
            look = image_similarity(draw_page(value), draw_page(gold))
        except DrawingError as error:
            raise GoldError(sample, f"a page that can be drawn; {error}") from None
        return BUILD_WEIGHT * build + WORDS_WEIGHT * words + LOOK_WEIGHT * look

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return _gold(sample)

    def check_gold(self, sample: Sample, config: RewardConfig) -> None:
        require_gold(sample)
        _gold(sample)

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        block = last_block(answer.text)
        return answer.text.startswith("<") if block is None else block.alone

    def is_quick(self, text: str, sample: Sample, config: RewardConfig) -> bool:
        return False

    def deadline_s(self, config: RewardConfig) -> float:
        return config.deadline_s + (START_S if config.drawing.browser else 0.0)

    def load(self) -> None:
        import skimage.metrics  # noqa: F401
        from selectolax.lexbor import LexborHTMLParser  # noqa: F401

        _tokenizer()

    def check(self, config: RewardConfig) -> None:
        if config.drawing.browser and find_program() is None:
            raise UserError(
                "reward.drawing.browser=true needs a Chromium program on the PATH, and there is "
                "none; install one, or leave the setting off"
            )


def read_html(answer: AnswerText) -> str:
    """The page in an answer: its last code block, a document within it, or all of a tagged answer.

    Raises:
        NoAnswer: there is none.
    """
    block = last_block(answer.text)
    if block is not None and block.language not in _LANGUAGES:
        raise NoAnswer(f"a code block in {block.language[:20]}, not in html")
    text = answer.text if block is None else block.code
    start = _DOCUMENT.search(text)
    if start is not None:
        ends = [match.end() for match in _DOCUMENT_END.finditer(text)]
        text = text[start.start() : ends[-1] if ends else len(text)]
    elif block is None and not answer.tagged:
        raise NoAnswer("no code block, no answer tag and no <html>")
    if _ELEMENT.search(text) is None:
        raise NoAnswer("no HTML element")
    return text.strip()


@lru_cache(maxsize=64)
def read_page(html: str) -> Page:
    """The paths and words of a page."""
    from selectolax.lexbor import LexborHTMLParser

    root = LexborHTMLParser(_without_surrogates(html)).root
    paths: Counter[int] = Counter()
    texts: list[str] = []
    # Of each element: a number for its path, and whether texts in it are seen.
    known: dict[int, tuple[int, bool]] = {}
    for node in root.traverse(include_text=True) if root is not None else ():
        parent = node.parent
        above, seen = known.get(parent.mem_id, (0, True)) if parent is not None else (0, True)
        if node.is_text_node:
            if seen:
                texts.append(node.text_content or "")
        elif node.is_element_node:
            tag = node.tag or ""
            path = hash((above, tag))
            known[node.mem_id] = path, seen and tag not in _NOT_SEEN
            if tag not in _ALWAYS_THERE:
                paths[path] += 1
    return Page(paths, Counter(_tokenizer().tokenize(" ".join(texts))))


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


@lru_cache(maxsize=1)
def _tokenizer() -> Tokenizer:
    return Tokenizer()


def _gold(sample: Sample) -> str:
    if not isinstance(sample.answer, str) or _ELEMENT.search(sample.answer) is None:
        raise GoldError(sample, "the text of an HTML page")
    if len(sample.answer) > MAX_CHARS:
        raise GoldError(sample, f"a page of at most {MAX_CHARS} characters")
    return sample.answer.strip()
