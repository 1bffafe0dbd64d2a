"""An SVG drawing: accuracy is 0.7 * look + 0.3 * build, of the answer beside the gold drawing.

Look: SSIM of the two, drawn by resvg on the same white square (`rendering.image_similarity`).
Build: F1 of the multisets of element names, and of attribute names with their element. Both are 0
to 1; the same drawing has 1. A drawing that resvg cannot draw is no answer. Images within a
drawing, scripts and references to anything outside it are not drawn; texts are, with the fonts of
the machine.
"""

import re

from easyvideor1.rewards.code_blocks import last_block
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.rewards.rendering import Drawing, DrawingError, draw_svg, image_similarity, overlap
from easyvideor1.schema.records import ProblemType, Sample

LOOK_WEIGHT, BUILD_WEIGHT = 0.7, 0.3
START_S = 10.0
"""For the renderer of a worker to start, beside the deadline."""

_START = re.compile(r"(?:<\?xml[^>]{0,200}>\s*)?(?:<!DOCTYPE\s|<svg[\s>/])", re.IGNORECASE)
_END = re.compile(r"</svg\s*>", re.IGNORECASE)


@register_task(ProblemType.svg_code)
class SvgCode(Task[str]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        return "Reason briefly, then give the SVG code, from <svg> to </svg>, in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> str:
        svg = read_svg(answer.text)
        try:
            draw_svg(svg)
        except DrawingError as error:
            raise NoAnswer(str(error)) from None
        return svg

    def score(self, value: str, sample: Sample, config: RewardConfig) -> float:
        drawing, gold = draw_svg(value), _gold(sample)
        look = image_similarity(drawing.pixels, gold.pixels)
        return LOOK_WEIGHT * look + BUILD_WEIGHT * overlap(drawing.parts, gold.parts)

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        _gold(sample)
        return str(sample.answer)

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        block = last_block(answer.text)
        text = answer.text if block is None else block.code.strip()
        return (block is None or block.alone) and read_svg(text) == text

    def is_quick(self, text: str, sample: Sample, config: RewardConfig) -> bool:
        return False

    def deadline_s(self, config: RewardConfig) -> float:
        """The renderer keeps to a limit of its own, and what takes longer is no answer."""
        return config.deadline_s + START_S

    def load(self) -> None:
        import skimage.metrics  # noqa: F401


def read_svg(text: str) -> str:
    """The SVG in a text: in its last code block if it has one, from the first <svg to </svg>.

    Raises:
        NoAnswer: there is none.
    """
    block = last_block(text)
    text = text if block is None else block.code
    start = _START.search(text)
    if start is None:
        raise NoAnswer("no <svg>")
    ends = [match.end() for match in _END.finditer(text)]
    return text[start.start() : ends[-1] if ends else len(text)].strip()


def _gold(sample: Sample) -> Drawing:
    if not isinstance(sample.answer, str):
        raise GoldError(sample, "the text of an SVG")
    try:
        return draw_svg(sample.answer.strip())
    except DrawingError as error:
        raise GoldError(sample, f"an SVG that can be drawn; {error}") from None
