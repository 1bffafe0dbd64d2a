import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from easyvideor1.rewards import GoldError, RewardConfig, browser, extract, render_gold, reward
from easyvideor1.rewards.browser import draw_page
from easyvideor1.rewards.config import DrawingConfig
from easyvideor1.rewards.registry import ScorerUnavailableError, task_of
from easyvideor1.rewards.rendering import DrawingError
from easyvideor1.rewards.tasks.html_code import read_page
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus

PAGE = "<div><h1>Hello</h1><p>big <b>world</b></p></div>"

needs_chromium = pytest.mark.skipif(
    browser.find_program() is None, reason="no Chromium program is installed"
)
WITH_BROWSER = RewardConfig(deadline_s=30.0, drawing=DrawingConfig(browser=True))


def sample(answer: Answer = PAGE) -> Sample:
    return Sample(id="h1", problem="Write it.", answer=answer, problem_type=ProblemType.html_code)


def accuracy(html: str, gold: str = PAGE, config: RewardConfig | None = None) -> float:
    score = reward(sample(gold), f"<answer>{html}</answer>", config or RewardConfig())
    assert score.status is ScoreStatus.ok, score.detail
    return score.parts["accuracy"]


DOCUMENT = f"<!DOCTYPE html><html><head><title>T</title></head><body>{PAGE}</body></html>"


@pytest.mark.parametrize("gold", [PAGE, DOCUMENT, "<br>", "<p>你好 <i>世界</i>", "<ul><li>a<li>b"])
def test_the_gold_page_scores_one(gold: str):
    score = reward(sample(gold), render_gold(sample(gold)))
    assert score.parts == {"accuracy": 1.0, "format": 1.0}


@pytest.mark.parametrize(
    "same",
    [
        f"<html><body>{PAGE}</body></html>",
        PAGE.upper().replace("HELLO", "Hello").replace("BIG", "big").replace("WORLD", "world"),
        "<div class='x' onclick='y()'>\n  <h1>Hello</h1>\n  <p>big <b>world\n</div>",
        PAGE.replace("<div>", "<div><!-- said -->"),
        "<div><h1>Hello</h1><p>big <b>worlds</b></p></div>",  # the same stem
    ],
)
def test_the_same_page_in_other_words_scores_one(same: str):
    assert accuracy(same) == 1.0


def test_accuracy_is_the_mean_worked_out_by_hand():
    # Paths of the gold page: div, div>h1, div>p, div>p>b; of the answer: div, div>p; 2 of 4 and 2.
    # Words: hello, big, world; of the answer: hello, there; 1 of 3 and 2.
    assert accuracy("<div><p>Hello there</p></div>") == pytest.approx(
        (2 * 2 / (4 + 2) + 2 * 1 / (3 + 2)) / 2
    )
    assert accuracy("<p>unlike</p>") == 0.0
    assert accuracy("<section><h2>Hello</h2><em>big world</em></section>") == 0.5


def test_repeated_elements_and_words_count_as_often_as_they_occur():
    page = read_page("<ul><li>a</li><li>a b</li></ul>")
    assert sorted(page.paths.values()) == [1, 2]
    assert page.words == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    "unseen",
    [
        "<script>Hello there</script>", "<style>p { color: red }</style>",
        "<template><p>Hello</p></template>", "<noscript>Hello</noscript>", "<!-- Hello -->",
    ],
)  # fmt: skip
def test_text_that_is_not_visible_does_not_count(unseen: str):
    assert read_page(f"<p>one</p>{unseen}").words == {"one": 1}
    assert read_page(f"<head><title>two</title></head><p>one</p>{unseen}").words == {"one": 1}


@pytest.mark.parametrize(
    ("text", "html", "format"),
    [
        (f"<answer>{PAGE}</answer>", PAGE, 1.0),
        (f"<answer>\n```html\n{PAGE}\n```\n</answer>", PAGE, 1.0),
        (f"<answer>Here: {DOCUMENT} Done.</answer>", DOCUMENT, 0.5),
        (f"<answer>Here:\n```html\n{PAGE}\n```\nDone.</answer>", PAGE, 0.5),
        (f"So:\n```html\n{PAGE}\n```", PAGE, 0.0),
        (f"So: {DOCUMENT}", DOCUMENT, 0.0),
    ],
)
def test_the_page_is_cut_out_of_its_text(text: str, html: str, format: float):
    extracted = extract(text, sample())
    assert (extracted.value, extracted.format) == (html, format)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no code block"),
        ("I would write <b>this</b>.", "no code block, no answer tag and no <html>"),
        ("<answer></answer>", "no HTML element"),
        ("<answer>a page</answer>", "no HTML element"),
        ("<answer>```css\np {}\n```</answer>", "in css, not in html"),
        (f"<answer><p>{'x' * 200_000}</p></answer>", "more than 100000 characters"),
    ],
)
def test_a_text_without_a_page_is_no_answer(text: str, reason: str):
    extracted = extract(text, sample())
    assert extracted.status is ScoreStatus.no_answer
    assert reason in extracted.detail


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 19_000, "<b><i><a><u>" * 8_000, "<table>" * 14_000, "</p>" * 24_000 + "<p>",
        "<p " + "a=1 " * 24_000 + ">", "<svg><foreignObject>" * 4_900, "<p>&" + "amp;" * 24_000,
        "<p>\0\ud800\ufffe</p>", "<!--" * 24_000 + "<p>", "<script>" * 12_000, "<p" * 40_000 + ">",
        "<a><b><p></a>" * 7_000, "<select><option>" * 6_000,
    ],
)  # fmt: skip
def test_hostile_pages_are_compared_as_any_other(html: str):
    assert 0.0 <= accuracy(html) <= 1.0


@pytest.mark.parametrize("gold", [5, "", "no page", ["<p>"], "<p>" + "x" * 200_000])
def test_a_gold_answer_that_is_no_page_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"h1: answer: got .*, expected"):
        render_gold(sample(gold))


# With a browser.


@needs_chromium
def test_a_page_is_seen_as_its_style_says():
    pixels = draw_page(
        "<body style='margin:0;background:#fff'><div style='width:200px;height:100px;"
        "background:rgb(255,0,0)'></div>"
    )
    assert pixels.shape == (browser.HEIGHT, browser.WIDTH, 3)
    red = np.argwhere((pixels == (255, 0, 0)).all(axis=-1))
    assert (red.min(axis=0).tolist(), red.max(axis=0).tolist()) == ([0, 0], [99, 199])
    assert len(red) == 200 * 100


@needs_chromium
def test_what_is_seen_joins_the_score():
    assert accuracy(PAGE, config=WITH_BROWSER) == pytest.approx(1.0)
    coloured = PAGE.replace("<h1>", "<h1 style='background: navy; color: white'>")
    assert accuracy(coloured) == 1.0
    seen = accuracy(coloured, config=WITH_BROWSER)
    assert 0.6 < seen < 0.9
    unlike = accuracy("<p>unlike</p>", config=WITH_BROWSER)
    assert unlike < 0.2


@needs_chromium
def test_a_page_reaches_nothing_outside_it(tmp_path: Path):
    """No script, file or address; what it holds itself is drawn."""
    secret = tmp_path / "secret.html"
    secret.write_text("<body style='background: lime'>secret")
    black = tmp_path / "style.css"
    black.write_text("body { background: lime }")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        page = f"""
            <link rel=stylesheet href="{black.as_uri()}">
            <link rel=stylesheet href="http://127.0.0.1:{port}/a.css">
            <link rel=preload as=image href="http://localhost:{port}/b.png">
            <meta http-equiv=refresh content="0;url=http://127.0.0.1:{port}/">
            <style>
                @import "http://127.0.0.1:{port}/c.css";
                body {{ background: url(http://127.0.0.1:{port}/d.png), url({secret.as_uri()}) }}
                @font-face {{ font-family: F; src: url(http://127.0.0.1:{port}/e.woff) }}
                p {{ font-family: F }}
            </style>
            <p>text</p>
            <img src="http://127.0.0.1:{port}/f.png"><img src="//127.0.0.1:{port}/g.png">
            <iframe src="{secret.as_uri()}"></iframe><embed src="{secret.as_uri()}">
            <object data="{secret.as_uri()}"></object>
            <iframe src="http://127.0.0.1:{port}/"></iframe>
            <iframe srcdoc="<script>parent.document.body.bgColor = 'lime'</script>"></iframe>
            <script>document.body.style.background = "lime"</script>
            <img src=x onerror="document.body.style.background = 'lime'">
            <script src="http://127.0.0.1:{port}/h.js"></script>
        """
        pixels = draw_page(page)
        assert not (pixels == (0, 255, 0)).all(axis=-1).any()
        with pytest.raises(BlockingIOError):
            server.accept()
    own = "<style>@import 'data:text/css,body{background:lime}';</style><p>"
    assert (draw_page(own)[5, 5] == (0, 255, 0)).all()


@needs_chromium
def test_a_browser_that_hangs_or_dies_is_replaced(monkeypatch: pytest.MonkeyPatch):
    draw_page("<p>first")
    process = browser._browser._process
    assert process is not None
    os.killpg(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(browser, "RENDER_TIMEOUT_S", 1.0)
    with pytest.raises(DrawingError, match="takes too long"):
        draw_page("<p>second")
    assert process.poll() is not None
    monkeypatch.undo()
    draw_page("<p>third")
    process = browser._browser._process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    draw_page("<p>fourth")


@needs_chromium
def test_the_browser_ends_with_the_process_that_started_it(tmp_path: Path):
    code = textwrap.dedent("""
        from easyvideor1.rewards import browser
        browser.draw_page("<p>x")
        print(browser._browser._process.pid, browser._browser._profile, flush=True)
        input()
    """)
    scorer = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert scorer.stdout is not None
    pid, profile = scorer.stdout.readline().split()
    scorer.kill()
    scorer.communicate()
    for _ in range(600):
        if not alive(pid):
            break
        time.sleep(0.05)
    assert not alive(pid)
    # What it left is cleared away when the next browser starts.
    monkeypatched = os.environ | {"TMPDIR": str(tmp_path)}
    clear = "from easyvideor1.rewards.browser import _clear_profiles; _clear_profiles()"
    subprocess.run([sys.executable, "-c", clear], env=monkeypatched, check=True)
    assert not Path(profile).exists()


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_without_a_chromium_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("chromium") is None
    with pytest.raises(UserError, match=r"reward\.drawing\.browser=true needs a Chromium"):
        task_of(sample()).check(WITH_BROWSER)
    browser._browser.close()
    with pytest.raises(ScorerUnavailableError, match="no Chromium is installed"):
        reward(sample(), "<answer><p>never seen before</p></answer>", WITH_BROWSER)
    task_of(sample()).check(RewardConfig())
