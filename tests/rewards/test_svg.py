import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from easyvideor1.rewards import GoldError, extract, render_gold, rendering, reward
from easyvideor1.rewards.rendering import CANVAS, draw_svg, image_similarity, overlap
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus

XMLNS = 'xmlns="http://www.w3.org/2000/svg"'
RED_HALF = f'<svg {XMLNS} width="64" height="64"><rect width="32" height="64" fill="red"/></svg>'
ICON = (
    f'<svg {XMLNS} viewBox="0 0 24 24"><path d="M12 2l9 20H3z" fill="none" stroke="black" '
    'stroke-width="2"/><circle cx="12" cy="16" r="2"/></svg>'
)


def sample(answer: Answer = RED_HALF) -> Sample:
    return Sample(id="s1", problem="Draw it.", answer=answer, problem_type=ProblemType.svg_code)


def accuracy(svg: str, gold: str = RED_HALF) -> float:
    score = reward(sample(gold), f"<answer>{svg}</answer>")
    assert score.status is ScoreStatus.ok, score.detail
    return score.parts["accuracy"]


def svg(content: str, size: str = 'width="64" height="64"') -> str:
    return f"<svg {XMLNS} {size}>{content}</svg>"


@pytest.mark.parametrize(
    "gold",
    [
        RED_HALF,
        ICON,
        "<svg xmlns='http://www.w3.org/2000/svg'><text x='5' y='20'>Hello</text></svg>",
        svg('<linearGradient id="g"><stop stop-color="red"/><stop offset="1"/></linearGradient>'
            '<circle cx="32" cy="32" r="30" fill="url(#g)"/>'),
        svg('<symbol id="s"><rect width="9" height="9"/></symbol><use href="#s" x="20"/>'),
        f'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" '
        f'"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">\n{RED_HALF}',
    ],
)  # fmt: skip
def test_the_gold_drawing_scores_one(gold: str):
    score = reward(sample(gold), render_gold(sample(gold)))
    assert score.parts == {"accuracy": pytest.approx(1.0), "format": 1.0}


@pytest.mark.parametrize(
    "same",
    [
        RED_HALF.replace("red", "#f00").replace("<rect", "\n  <!-- a half -->\n  <rect"),
        RED_HALF.replace(f" {XMLNS}", ""),
        RED_HALF.replace('width="64" height="64"><rect width="32" height="64"',
                         'width="128" height="128"><rect width="64" height="128"'),
        RED_HALF.replace('"64"', '"64px"'),
        RED_HALF.replace('<rect width="32" height="64"', '<rect width="50%" height="100%"'),
    ],
)  # fmt: skip
def test_the_same_drawing_in_other_words_scores_one(same: str):
    assert accuracy(same) == pytest.approx(1.0)


def test_pixels_are_those_that_pillow_draws():
    expected = Image.new("RGB", (CANVAS, CANVAS), "white")
    ImageDraw.Draw(expected).rectangle((0, 0, CANVAS // 2 - 1, CANVAS - 1), fill="red")
    assert np.array_equal(draw_svg(RED_HALF).pixels, np.asarray(expected))


def test_a_drawing_keeps_its_proportions_in_the_middle_of_the_square():
    flat = draw_svg(svg('<rect width="200" height="100"/>', 'width="200" height="100"')).pixels
    dark = np.argwhere((flat == 0).all(axis=-1))
    assert dark.min(axis=0).tolist() == [CANVAS // 4, 0]
    assert dark.max(axis=0).tolist() == [3 * CANVAS // 4 - 1, CANVAS - 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [((255, 0, 0), (0, 0, 255)), ((10, 200, 30), (40, 160, 90)), ((0, 0, 0), (255, 255, 255))],
)
def test_ssim_of_two_flat_colours_is_the_one_worked_out_by_hand(one: tuple, other: tuple):
    """Without variance SSIM is its first factor, (2ab + C) / (a² + b² + C), C = (0.3 * 255)²."""
    constant = (0.3 * 255) ** 2
    by_hand = np.mean(
        [
            (2 * a * b + constant) / (a * a + b * b + constant)
            for a, b in zip(one, other, strict=True)
        ]
    )
    images = [np.full((CANVAS, CANVAS, 3), colour, np.uint8) for colour in (one, other)]
    assert image_similarity(*images) == pytest.approx(by_hand)


def test_structure_is_the_f1_worked_out_by_hand():
    one = draw_svg(svg('<rect width="1" x="2"/><rect/>')).parts
    other = draw_svg(svg('<rect width="9"/><circle r="3"/>')).parts
    # 7 of {svg, svg width, svg height, rect, rect, rect width, rect x}; the other has 7 as well:
    # {svg, svg width, svg height, rect, rect width, circle, circle r}; 5 are common.
    assert overlap(one, other) == pytest.approx(2 * 5 / 14)


def test_what_looks_more_alike_scores_more():
    order = [
        RED_HALF,
        RED_HALF.replace("red", "#e01010"),
        RED_HALF.replace('<rect width="32"', '<rect width="36"'),
        RED_HALF.replace("red", "blue"),
        svg(""),
    ]
    scores = [accuracy(answer) for answer in order]
    assert scores == sorted(scores, reverse=True)
    assert scores[1] > 0.9
    assert len(set(scores)) == len(scores)


def test_an_empty_drawing_is_not_like_a_sparse_one():
    """Most of both is white; only where one of them shows is compared."""
    look = image_similarity(draw_svg(ICON).pixels, draw_svg(svg("", 'viewBox="0 0 24 24"')).pixels)
    assert look < 0.1
    blank = draw_svg(svg("")).pixels
    assert image_similarity(blank, blank) == 1.0


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (f"<answer>{RED_HALF}</answer>", 1.0),
        (f"<answer>\n```svg\n{RED_HALF}\n```\n</answer>", 1.0),
        (f"<answer>Here it is: {RED_HALF}</answer>", 0.5),
        (f"<answer>\n```xml\n{RED_HALF}\n```\nDone.</answer>", 0.5),
        (f"Here:\n```svg\n{RED_HALF}\n```", 0.0),
        (f"I draw {RED_HALF}", 0.0),
        (f"<think><svg></svg></think><answer>{RED_HALF}</answer>", 1.0),
    ],
)
def test_the_drawing_is_cut_out_of_its_text(text: str, format: float):
    extracted = extract(text, sample())
    assert (extracted.value, extracted.format) == (RED_HALF, format)


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "no <svg>"),
        ("a red square", "no <svg>"),
        ("<svg", "no <svg>"),
        ("<svg><rect></svg>", "no XML"),
        ("<svg>\0</svg>", "no XML"),
        ("<svg>\ud800</svg>", "no XML"),
        (f"<!DOCTYPE html><html>{RED_HALF}</html>", "no XML|outermost"),
        (f"<!DOCTYPE svg [{LAUGHS}]><svg>&l9;</svg>", "refused: EntitiesForbidden"),
        (f'<!DOCTYPE svg [<!ENTITY l0 "ha">{LAUGHS}]><svg>&l9;</svg>', "refused"),
        ('<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg><text>&x;</text></svg>',
         "refused"),
        ('<!DOCTYPE svg [<!ENTITY % x SYSTEM "http://127.0.0.1:9/">%x;]><svg/></svg>', "refused"),
        ("<svg>" + "<g>" * 100 + "</g>" * 100 + "</svg>", "nested deeper"),
        ("<svg>" + "<g>" * 50_000 + "</svg>", "nested deeper|characters"),
        ("<svg>" + "<g/>" * 6_000 + "</svg>", "more than 5000 elements"),
        (f"<svg><!--{'x' * 300_000}--></svg>", "characters"),
        (svg("", 'width="0" height="0"'), "resvg"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_no_answer_and_says_why(answer: str, reason: str):
    extracted = extract(f"<answer>{answer}</answer>", sample())
    assert extracted.status is ScoreStatus.no_answer
    assert re.search(reason, extracted.detail), extracted.detail


MASKS = "".join(
    f'<mask id="m{n}">' + f'<rect width="64" height="64" mask="url(#m{n + 1})"/>' * 4 + "</mask>"
    for n in range(14)
)
LAYERS = '<g opacity="0.5"><rect width="64" height="64"/><rect width="2" height="64"/></g>'
USES = "".join(f'<g id="u{n}">' + f'<use href="#u{n - 1}"/>' * 10 + "</g>" for n in range(1, 9))

HOSTILE = {
    "turbulence": '<filter id="f"><feTurbulence baseFrequency="0.05" numOctaves="100000"/></filter>'
                  '<rect width="64" height="64" filter="url(#f)"/>',
    "morphology": '<filter id="f"><feMorphology radius="100000"/></filter>'
                  '<rect width="64" height="64" filter="url(#f)"/>',
    "nested_masks": MASKS + '<rect width="64" height="64" mask="url(#m0)"/>',
    "many_layers": LAYERS * 1_600,
    "endless_pattern": '<pattern id="p" width="1" height="1" patternTransform="scale(100000)">'
                       '<rect width="1" height="1"/></pattern>'
                       '<rect width="64" height="64" fill="url(#p)"/>',
    "uses_of_uses": f'<defs><rect id="u0" width="1" height="1"/>{USES}</defs><use href="#u8"/>',
}  # fmt: skip


@pytest.mark.parametrize("drawing", HOSTILE)
def test_a_drawing_that_takes_too_much_is_no_answer_and_harms_no_other(drawing: str):
    extracted = extract(f"<answer>{svg(HOSTILE[drawing])}</answer>", sample())
    assert extracted.status is ScoreStatus.no_answer
    assert "resvg" in extracted.detail
    assert accuracy(RED_HALF) == 1.0


@pytest.mark.parametrize(
    "content",
    [
        '<g id="a"><use href="#a"/></g>',
        '<use id="a" href="#b"/><use id="b" href="#a"/>',
        '<path d="M0 0H100000" stroke="red" stroke-dasharray="0.0001"/>',
        '<circle r="1e38" cx="-1e38"/><path d="M1e38 1e38L-1e38 9" stroke="red"/>',
        '<filter id="f" x="-9e9" width="9e12" height="9e12"><feGaussianBlur stdDeviation="1e9"/>'
        '</filter><rect width="64" height="64" filter="url(#f)"/>',
        "<text>" + "x" * 20_000 + "</text>",
        "<style>@import url(file:///etc/passwd); rect { fill: url(http://127.0.0.1:9/) }</style>",
        "<script>while (true) {}</script>",
    ],
)
def test_odd_drawings_are_drawn_all_the_same(content: str):
    assert 0.0 <= accuracy(svg(content)) <= 1.0
    assert 0.0 <= accuracy(svg(content, 'viewBox="0 0 1e30 1e30"')) <= 1.0


@pytest.mark.parametrize("name", ["href", "xlink:href"])
@pytest.mark.parametrize("element", ["image", "use", "feImage"])
def test_nothing_outside_a_drawing_is_drawn(name: str, element: str, tmp_path: Path):
    """Neither a file nor an address; a picture in the drawing is left out as well."""
    picture = tmp_path / "black.png"
    Image.new("RGB", (64, 64)).save(picture)
    other = tmp_path / "black.svg"
    other.write_text(svg('<rect id="r" width="64" height="64"/>'))
    pattern = '<filter id="f">{}</filter><rect width="64" height="64" filter="url(#f)"/>'
    pattern = pattern if element == "feImage" else "{}"
    without = draw_svg(svg(pattern.format(""))).pixels
    for address in (
        str(picture), picture.as_uri(), f"{other}#r", other.as_uri() + "#r",
        os.path.relpath(picture), "http://127.0.0.1:9/x.png", "data:image/png;base64,iVBORw0KGgo=",
    ):  # fmt: skip
        inner = f'<{element} {name}="{address}" width="64" height="64"/>'
        pixels = draw_svg(svg(pattern.format(inner))).pixels
        assert np.array_equal(pixels, without), address


@pytest.mark.parametrize("gold", [5, ["<svg/>"], "a square", "<svg>", "<svg><rect></svg>"])
def test_a_gold_answer_that_is_no_drawing_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"s1: answer: got .*, expected (the text of )?an SVG"):
        render_gold(sample(gold))


def test_a_fork_draws_with_a_renderer_of_its_own():
    draw_svg(svg("<rect/>"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            drawn = draw_svg(svg('<rect width="64" height="64" fill="red" y="1"/>'))
            code = int(drawn.pixels[CANVAS - 1, 0].tolist() != [255, 0, 0])
            rendering._renderer.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert accuracy(svg('<rect width="32" height="64" fill="red" y="0"/>')) > 0.9


def test_the_renderer_is_a_process_of_its_own_that_comes_back():
    draw_svg(svg("<rect/>"))
    first = rendering._renderer._process
    assert first is not None
    first.kill()
    first.wait()
    assert accuracy(svg('<rect width="32" height="64" fill="red" x="0"/>')) > 0.9
    assert rendering._renderer._process is not first
