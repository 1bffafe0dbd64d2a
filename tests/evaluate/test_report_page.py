"""The report in a headless Chromium, as a reader has it: keys, filters, frames, light and dark."""

from collections.abc import Generator
from pathlib import Path

import pytest

from easyvideor1.evaluate.config import ReportConfig
from easyvideor1.evaluate.report import write_report
from easyvideor1.rewards import browser
from tests.chromium_page import ChromiumPage
from tests.clips import video
from tests.evaluate.test_report import numbered, on_own_videos, section

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.find_program() is None, reason="no Chromium program is installed"),
]

RIGHT, WRONG = "<answer>A</answer>", "<answer>B</answer>"


@pytest.fixture
def chromium() -> Generator[ChromiumPage]:
    page = ChromiumPage()
    yield page
    page.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,500 questions of one benchmark, a third of them right, and three of another."""
    clip = video(4)
    many = section(on_own_videos(2_500), [RIGHT, WRONG, "a dog"] * 834, lambda sample: [clip])
    few = section(numbered([], 3), ["<b>red</b>", RIGHT], lambda sample: [], title="other")
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(path, [many, few], ReportConfig(max_samples=40))
    return path


def chosen(page: ChromiumPage) -> str:
    return page.run("document.querySelector('#list [aria-selected=true]').textContent")


def found(page: ChromiumPage) -> int:
    return page.run("found.length")


def test_it_opens_from_the_disk_and_asks_for_nothing_else(
    chromium: ChromiumPage, report: Path
) -> None:
    chromium.open(report)
    assert found(chromium) == 2_503
    assert chromium.run("list.children.length") == 100, "rows come as the list is scrolled"
    images = "[...document.querySelectorAll('#detail img')]"
    assert chromium.run(f"Promise.all({images}.map(one => one.decode())).then(() => 'drawn')")
    assert chromium.run(f"{images}.map(one => one.naturalWidth)") == [96] * 4
    assert chromium.problems == []
    assert set(chromium.requested) <= {report.as_uri()}
    # What a page asks for would be in that list.
    chromium.run("fetch('http://127.0.0.1:9/asked').catch(() => 'refused')")
    assert "http://127.0.0.1:9/asked" in chromium.requested


def test_keys_walk_filter_and_search(chromium: ChromiumPage, report: Path) -> None:
    chromium.open(report)
    chromium.press("j", "j", "k")
    assert chosen(chromium).endswith("s1")
    chromium.press("w")
    assert found(chromium) == chromium.run("questions.filter(q => q.verdict === 'wrong').length")
    chromium.press("a", "G")
    assert chosen(chromium).endswith("s2")
    assert chromium.run("list.children.length") == 2_503
    chromium.press("/", *"dog")
    assert chromium.run("search.value") == "dog" and found(chromium) == 833
    chromium.press("Escape", "j")
    assert chosen(chromium).endswith("s5")
    chromium.press("c")
    assert found(chromium) == 2_503 and chromium.run("search.value") == ""
    assert chromium.problems == []


def test_menus_choose_benchmark_and_status(chromium: ChromiumPage, report: Path) -> None:
    chromium.open(report)
    chromium.run("byBenchmark.value = 'other'; byBenchmark.dispatchEvent(new Event('change'))")
    assert found(chromium) == 3
    chromium.run("byStatus.value = 'missing'; byStatus.dispatchEvent(new Event('change'))")
    assert found(chromium) == 1
    assert chromium.problems == []


def test_what_the_model_wrote_is_text(chromium: ChromiumPage, report: Path) -> None:
    chromium.open(report)
    chromium.run("byBenchmark.value = 'other'; byBenchmark.dispatchEvent(new Event('change'))")
    assert chromium.run("document.querySelectorAll('#detail b').length") == 0
    assert "<b>red</b>" in chromium.run("detail.textContent")


@pytest.mark.parametrize("dark", [False, True])
def test_it_follows_the_readers_preference_and_the_key(
    chromium: ChromiumPage, report: Path, dark: bool
) -> None:
    colours = ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]
    background = "getComputedStyle(document.body).backgroundColor"
    chromium.open(report, dark=dark)
    assert chromium.run(background) == colours[dark]
    chromium.press("t")
    assert chromium.run(background) == colours[not dark]
    chromium.press("t")
    assert chromium.run(background) == colours[dark]
