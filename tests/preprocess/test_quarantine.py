"""The quarantine: one line per failure, whoever writes it."""

import multiprocessing
from pathlib import Path

from easyvideor1.preprocess.config import CacheConfig
from easyvideor1.preprocess.quarantine import Failure, Quarantine
from easyvideor1.schema import jsonl


def failure(number: int, reason: str = "no video stream") -> Failure:
    return Failure(path=f"{number}.mp4", reason=reason, sample_ids=("s1",), key=f"key{number}")


def test_a_failure_is_noted_once_and_a_further_reason_beside_it(cache_config: CacheConfig) -> None:
    quarantine = Quarantine(cache_config)
    quarantine.add([failure(1), failure(2)])
    quarantine.add([failure(1)])
    quarantine.add([failure(1, "took too long")])
    assert len(jsonl.read(quarantine.path)) == 3
    assert quarantine.reasons() == {"key1": "took too long", "key2": "no video stream"}


def test_what_another_run_notes_is_seen_at_once(cache_config: CacheConfig) -> None:
    ours, theirs = Quarantine(cache_config), Quarantine(cache_config)
    assert ours.reason("key1") is None
    theirs.add([failure(1)])
    assert ours.reason("key1") == "no video stream"
    theirs.add([failure(2)])
    assert ours.reason("key2") == "no video stream"
    assert ours.reason("key3") is None


def test_a_medium_without_a_file_has_no_key(cache_config: CacheConfig) -> None:
    quarantine = Quarantine(cache_config)
    absent = Failure(path="absent.mp4", reason="No such file or directory", sample_ids=("s1",))
    quarantine.add([absent])
    quarantine.add([absent])
    assert quarantine.reasons() == {}
    assert len(jsonl.read(quarantine.path)) == 1


def _add_many(folder: str, first: int) -> None:
    quarantine = Quarantine(CacheConfig(dir=folder))
    for number in range(first, first + 50):
        quarantine.add([failure(number)])


def test_several_runs_may_add_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    # Ranges overlap: what two runs find is still one line.
    processes = [
        context.Process(target=_add_many, args=(str(tmp_path), first)) for first in (0, 25, 50)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    rows = jsonl.read(tmp_path / "quarantine.jsonl")
    assert sorted(row["key"] for row in rows) == sorted(f"key{n}" for n in range(100))
