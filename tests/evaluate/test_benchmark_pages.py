"""The pages in docs/benchmarks are what the YAML files say."""

from tests.evaluate.benchmark_fixtures import NAMES
from tools.benchmark_pages import PAGES, described, pages


def test_pages_are_current() -> None:
    wanted = pages()
    assert {path.name: path.read_text() for path in PAGES.glob("*.md")} == {
        path.name: text for path, text in wanted.items()
    }, "run `make docs`"


def test_every_benchmark_with_fixtures_says_what_it_is() -> None:
    benchmarks = described()
    assert set(NAMES) <= set(benchmarks)
    for name, one in benchmarks.items():
        about = one.about
        assert about.paper and about.get and about.files and about.protocol, name
        assert one.data.media_root and one.notes, name
