"""The collector of measurements."""

from pathlib import Path

import pytest

from perf import collect

SCRIPT = """\
import json
print("warming up")
print(json.dumps({"claim": "%s", "ratio": %s, "ours_s": 1.0, "baseline_s": 2.0, "detail": {}}))
"""


@pytest.fixture
def perf_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "perf"
    folder.mkdir()
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(collect, "PERF", folder)
    monkeypatch.setattr(collect, "RESULTS", folder / "results.jsonl")
    monkeypatch.setattr(collect, "PAGE", tmp_path / "docs" / "performance.md")
    return folder


def test_a_second_measurement_replaces_its_claim_and_keeps_the_others(perf_dir: Path) -> None:
    (perf_dir / "one.py").write_text(SCRIPT % ("decode_beats_seek", "2.0"))
    (perf_dir / "two.py").write_text(SCRIPT % ("cache_beats_decode", "3.0"))
    collect.store([result for path in collect.scripts([]) for result in collect.measure(path)])
    (perf_dir / "one.py").write_text(SCRIPT % ("decode_beats_seek", "2.5"))
    collect.store([result for path in collect.scripts(["one"]) for result in collect.measure(path)])

    assert {r.claim: r.ratio for r in collect.stored()} == {
        "cache_beats_decode": 3.0,
        "decode_beats_seek": 2.5,
    }
    assert "| decode_beats_seek | 2.50 | 1 | 2 | `perf/one.py` |" in collect.PAGE.read_text()


def test_a_script_that_fails_or_claims_nothing_is_an_error(perf_dir: Path) -> None:
    (perf_dir / "fails.py").write_text("raise SystemExit(3)")
    (perf_dir / "silent.py").write_text("print('done')")
    with pytest.raises(RuntimeError, match=r"fails\.py ended with status 3"):
        collect.measure(perf_dir / "fails.py")
    with pytest.raises(RuntimeError, match=r"silent\.py printed no claim"):
        collect.measure(perf_dir / "silent.py")


def test_an_unknown_name_lists_the_known(perf_dir: Path) -> None:
    (perf_dir / "one.py").write_text("")
    with pytest.raises(SystemExit, match=r"no perf/two\.py; there are: one"):
        collect.scripts(["two"])
