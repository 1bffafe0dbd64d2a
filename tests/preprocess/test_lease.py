"""Leases and claims, between real processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from easyvideor1.preprocess import lease as leases
from easyvideor1.preprocess.errors import LeaseLostError
from easyvideor1.preprocess.lease import LEASE_S, RunLease
from easyvideor1.preprocess.process_identity import ProcessIdentity
from tests.preprocess import lease_holder


class Holder:
    """A run in another process."""

    def __init__(self, cache_folder: Path):
        self.process = subprocess.Popen(
            [sys.executable, lease_holder.__file__, str(cache_folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.run_id = self._answer()

    def ask(self, command: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._answer()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        if number is signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def holder(cache: Path) -> Generator[Callable[[], Holder]]:
    started: list[Holder] = []

    def start() -> Holder:
        started.append(Holder(cache))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def stop_heartbeat(cache: Path, run_id: str, *, age_s: float) -> None:
    """As if the run had been silent for so long."""
    lease_file = cache / "runs" / run_id / "lease.json"
    beat_s = lease_file.stat().st_mtime - age_s
    os.utime(lease_file, (beat_s, beat_s))


def sealed(cache: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (cache / "shards").glob("*")}


def test_a_clip_is_claimed_by_one_run_until_it_drops_it(cache: Path, holder) -> None:
    other = holder()
    with RunLease(cache) as lease:
        assert lease.claim("a")
        assert other.ask("claim a") == "False"
        assert lease.claim("a"), "a claim of our own stays ours"
        assert other.ask("claim b") == "True"
        assert not lease.claim("b")
        assert lease.claimed() == {"a", "b"}
        lease.drop("a")
        lease.drop("b")
        assert other.ask("claim a") == "True"
        assert lease.claimed() == {"a", "b"}, "another run's claim is not ours to drop"


def test_a_run_that_ends_leaves_nothing_but_what_it_sealed(cache: Path, holder) -> None:
    other = holder()
    for command in ("claim a", "draft one", "seal one", "draft two"):
        assert other.ask(command) in ("True", "ok")
    assert other.ask("end") == "ended"
    assert sealed(cache) == {"one": other.run_id}
    assert not list((cache / "runs").iterdir()) and not list((cache / "claims").iterdir())


def test_a_killed_run_is_removed_at_once_with_its_drafts_and_claims(cache: Path, holder) -> None:
    other = holder()
    for command in ("claim a", "draft one", "seal one", "draft two"):
        other.ask(command)
    other.kill()
    with RunLease(cache) as lease:
        assert lease.claim("a")
        assert [path.name for path in (cache / "runs").iterdir()] == [lease.run_id]
        assert [path.name for path in lease.drafts.iterdir()] == ["lease.json"]
    assert sealed(cache) == {"one": other.run_id}


def test_a_killed_run_that_nobody_waited_for_is_dead_too(cache: Path, holder) -> None:
    other = holder()
    other.ask("claim a")
    other.process.kill()
    os.waitid(os.P_PID, other.process.pid, os.WEXITED | os.WNOWAIT)
    with RunLease(cache) as lease:
        assert lease.claim("a")


def test_a_live_run_is_left_alone(cache: Path, holder) -> None:
    other = holder()
    other.ask("claim a")
    stop_heartbeat(cache, other.run_id, age_s=LEASE_S - 30)
    with RunLease(cache) as lease:
        assert not lease.claim("a")
        assert lease.remove_dead_runs() == 0
        assert lease.others() == [f"process {other.process.pid} on {os.uname().nodename}"]
        assert other.ask("check") == "ok"


def test_a_stalled_run_whose_lease_was_taken_over_can_do_nothing_any_more(
    cache: Path, holder
) -> None:
    stalled = holder()
    for command in ("claim a", "draft one", "draft two", "seal one", "check"):
        assert stalled.ask(command) in ("True", "ok")
    stalled.signal(signal.SIGSTOP)
    stop_heartbeat(cache, stalled.run_id, age_s=LEASE_S + 1)
    with RunLease(cache) as lease:
        assert lease.claim("a")
        stalled.signal(signal.SIGCONT)
        for command in ("seal two", "draft three", "check"):
            answer = stalled.ask(command)
            assert answer.startswith("LeaseLostError") and "another run took over" in answer
        assert stalled.ask("drop a") == "ok"
        assert "a" in lease.claimed(), "the claim has another owner now"
        # What it claims on its way out belongs to no run, and goes with the next look.
        stalled.ask("claim b")
        assert not lease.claim("b")
        lease.remove_dead_runs()
        assert lease.claim("b")
        assert stalled.ask("end") == "ended"
        assert lease.claimed() == {"a", "b"}
    assert sealed(cache) == {"one": stalled.run_id}


def test_a_run_that_is_silent_on_another_machine_is_dead_after_the_lease(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = cache / "runs" / "0123"
    elsewhere.mkdir(parents=True)
    own = ProcessIdentity.current()
    identity = ProcessIdentity(host="node7", space="another boot", pid=own.pid, started=1)
    (elsewhere / "lease.json").write_text(identity.as_json())
    (elsewhere / "a draft").write_text("half a shard")
    with RunLease(cache) as lease:
        assert lease.others() == [f"process {own.pid} on node7"]
        stop_heartbeat(cache, "0123", age_s=LEASE_S + 1)
        # The local clock has no say.
        monkeypatch.setattr("time.time", lambda: 0.0)
        assert lease.remove_dead_runs() == 1
        assert not elsewhere.exists() and lease.others() == []


@pytest.mark.parametrize("content", [None, "", '{"host": "node7", "pi'])
def test_a_run_that_was_killed_while_it_began_is_removed_after_the_lease(
    cache: Path, content: str | None
) -> None:
    begun = cache / "runs" / "0123"
    begun.mkdir(parents=True)
    if content is not None:
        (begun / "lease.json").write_text(content)
    with RunLease(cache) as lease:
        assert begun.exists(), "it may be beginning"
        old_s = begun.stat().st_mtime - LEASE_S - 1
        for path in (begun, *begun.iterdir()):
            os.utime(path, (old_s, old_s))
        assert lease.remove_dead_runs() == 1
        assert not begun.exists()


def test_the_claims_of_a_dead_run_are_dropped_although_its_heir_died_meanwhile(
    cache: Path, holder
) -> None:
    first, heir = holder(), holder()
    first.ask("claim a")
    heir.kill()
    first.kill()
    # The heir had got as far as to take the folder.
    (cache / "runs" / first.run_id).rename(cache / "runs" / heir.run_id / f"dead-{first.run_id}")
    with RunLease(cache) as lease:
        assert lease.claim("a")
        assert [path.name for path in (cache / "runs").iterdir()] == [lease.run_id]


def test_claims_of_a_run_stand_while_its_heir_still_deletes_it(cache: Path, holder) -> None:
    first, heir = holder(), holder()
    first.ask("claim a")
    first.kill()
    (cache / "runs" / first.run_id).rename(cache / "runs" / heir.run_id / f"dead-{first.run_id}")
    with RunLease(cache) as lease:
        assert not lease.claim("a")


def test_a_lost_lease_is_noticed_by_every_call_that_relies_on_it(cache: Path) -> None:
    with RunLease(cache) as lease:
        lease.check()
        lease.drafts.rename(cache / "taken")
        for call in (lease.check, lease.remove_dead_runs):
            with pytest.raises(LeaseLostError, match=lease.run_id):
                call()


def test_a_heartbeat_keeps_a_lease(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_S", 0.02)
    with RunLease(cache) as lease:
        stop_heartbeat(cache, lease.run_id, age_s=1000.0)
        lease_file = lease.drafts / "lease.json"
        old_s = lease_file.stat().st_mtime
        while lease_file.stat().st_mtime <= old_s + 100:
            pass


def _take_all(cache: Path, dead_id: str, start, results) -> None:
    with RunLease(cache) as lease:
        start.wait()
        taken = lease._take_over(cache / "runs" / dead_id)
        claimed = [key for key in map(str, range(200)) if lease.claim(key)]
        results.put((taken, claimed))
        start.wait()  # holds its claims until all have tried


def test_of_many_runs_one_takes_over_and_each_claim_is_won_once(cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    count = 4
    start, results = context.Barrier(count), context.Queue()
    # Not dead by its own evidence, so that only `_take_over` below takes it.
    dead = cache / "runs" / "0123"
    dead.mkdir(parents=True)
    processes = [
        context.Process(target=_take_all, args=(cache, "0123", start, results))
        for _ in range(count)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(taken for taken, _ in found) == [False, False, False, True]
    claims = [key for _, claimed in found for key in claimed]
    assert sorted(claims) == sorted(map(str, range(200)))


def test_a_process_is_known_by_more_than_its_number() -> None:
    own = ProcessIdentity.current()
    assert not own.has_ended()
    assert ProcessIdentity.from_json(own.as_json()) == own
    later = ProcessIdentity(host=own.host, space=own.space, pid=own.pid, started=own.started - 1)
    assert later.has_ended()
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    gone = ProcessIdentity(host=own.host, space=own.space, pid=child.pid, started=own.started)
    assert gone.has_ended()
    unknown = ProcessIdentity(host="node7", space="another", pid=child.pid, started=1)
    assert not unknown.has_ended()
