"""`job=plan`: what caching the data would cost in bytes and hours, before any of it is done.

Reads the headers of the missing media, of a random sample where they are many, and decodes a few
for a try. Prints what all codecs would make of them, and refuses what would not fit on the disk,
with the settings that would. The arithmetic is in `estimate` and `fitting`.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from easyvideor1.preprocess.config import Codec, PreprocessConfig
from easyvideor1.schema.budget import Budgets, Snap
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import MediaKind

if TYPE_CHECKING:
    from easyvideor1.preprocess.cache_worker import ClipJob
    from easyvideor1.preprocess.estimate import Amount, Group, Probed, Trial
    from easyvideor1.preprocess.headers import Headers
    from easyvideor1.preprocess.rules import FamilyRules

TRIALS_PER_KIND = 8
SHOWN_FAILURES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """Everything a plan says."""

    folder: str
    free_bytes: int
    num_samples: int
    reused: int
    known_failures: int
    """Missing files and those that an earlier run could not decode."""
    groups: tuple["Group", ...]
    """Of clips that are missing."""
    trials: tuple["Trial", ...]
    failures: tuple[tuple[str, str], ...]
    """Names of media that give no frames, with the reason."""
    num_workers: int


def plan(config: PreprocessConfig) -> None:
    """Print what `job=cache` with this config would cost.

    Raises:
        UserError: if the frames would not fit on the disk; names settings under which they would.
    """
    from easyvideor1.preprocess.parts import open_parts

    parts = open_parts(config)

    from easyvideor1.preprocess.cache_worker import free_disk_bytes
    from easyvideor1.preprocess.decode import media_name
    from easyvideor1.preprocess.engine import survey
    from easyvideor1.preprocess.headers import read_headers
    from easyvideor1.preprocess.trial import try_clips

    rules = parts[0][1].rules
    found = survey(parts)
    headers = read_headers(found.pending, config, is_cached=False)
    num_workers = config.decode.workers or len(os.sched_getaffinity(0))
    trials = try_clips(_for_trial(headers), config.decode, config.cache, num_workers=num_workers)
    names = {job.key: media_name(job.media) for job, _ in headers.probed}
    folder = resolve_output(config.cache.dir)
    findings = Findings(
        folder=str(folder),
        free_bytes=free_disk_bytes(folder),
        num_samples=sum(len(samples) for samples, _ in parts),
        reused=len(found.reused),
        known_failures=len(found.failures),
        groups=headers.groups,
        trials=trials.done,
        failures=(
            *((failure.path, failure.reason) for failure in found.failures),
            *headers.failures,
            *((names[key], reason) for key, reason in trials.failures.items()),
        ),
        num_workers=num_workers,
    )
    print("\n".join(describe(findings, config, rules)))
    _refuse_what_does_not_fit(findings, found.reused, config, rules)


def _for_trial(headers: "Headers") -> list[tuple["ClipJob", "Probed"]]:
    """A few clips of each kind, the kinds in turn: the time may be up before all are done."""
    by_kind = [
        [pair for pair in headers.probed if pair[0].media.kind is kind][:TRIALS_PER_KIND]
        for kind in MediaKind
    ]
    longest = max(map(len, by_kind))
    return [pairs[i] for i in range(longest) for pairs in by_kind if i < len(pairs)]


def describe(findings: Findings, config: PreprocessConfig, rules: "FamilyRules") -> list[str]:
    """The lines that a plan prints."""
    from easyvideor1.preprocess.estimate import estimate, stored_bytes, working_seconds

    estimated = estimate(findings.groups, config.budget, rules)
    total = estimated.total
    codec = config.cache.codec
    missing = estimated.count
    lines = [
        f"cache     {findings.folder} ({config.cache.format.value}, {codec.value}), "
        f"{bytes_text(findings.free_bytes)} free",
        f"clips     of {findings.num_samples:,} samples: {missing:,} missing, "
        f"{findings.reused:,} in the cache, {findings.known_failures:,} unreadable",
    ]
    if missing:
        looked_at = sum(group.num_looked_at for group in findings.groups)
        lines.append(
            f"headers   {looked_at:,} of {missing:,} read, "
            f"{sum(group.num_unreadable for group in findings.groups):,} in vain; "
            f"{len(findings.trials)} clips decoded for a try"
        )
        at_most = "at most " if _snaps(findings.groups, config.budget) else ""
        lines.append(f"frames    {at_most}{amount_text(total.frames, count_text)}")
        amounts = {c: stored_bytes(estimated, findings.trials, c) for c in Codec}
        lines += [
            f"bytes     {c.value:4}  {at_most}{amount_text(amount, bytes_text)}"
            f"{', lossy' if c.is_lossy else ''}{' (cache.codec)' if c is codec else ''}"
            for c, amount in amounts.items()
            if amount is not None
        ]
        seconds = working_seconds(estimated, findings.trials, codec)
        if seconds is not None:
            lines.append(_time_line(seconds, findings.num_workers, config))
        lines += _cap_lines(findings.groups, config.budget, rules)
    lines += _failure_lines(findings.failures)
    return lines


def _time_line(seconds: "Amount", num_workers: int, config: PreprocessConfig) -> str:
    hours = seconds.scaled(1 / num_workers / 3600)
    about = "about " if hours.is_exact else ""  # even if all were tried, times vary
    line = f"time      {about}{amount_text(hours, hours_text)} on {num_workers} workers"
    if config.ray.address and not config.decode.workers:
        line += " (the cores of this machine; decode.workers says how many the cluster runs)"
    return line


def _snaps(groups: Iterable["Group"], budgets: Budgets) -> bool:
    """Whether some clips may get fewer frames, because two have the same key frame."""
    return any(
        budgets.of(group.kind.value, validation=group.validation).snap is Snap.keyframe
        for group in groups
        if group.kind is MediaKind.video
    )


def _cap_lines(groups: Iterable["Group"], budgets: Budgets, rules: "FamilyRules") -> list[str]:
    from easyvideor1.preprocess.estimate import frame_cap

    lines = []
    for group in groups:
        budget = budgets.of(group.kind.value, validation=group.validation)
        if group.kind is MediaKind.video and (cap := frame_cap(group.probed, budget, rules)):
            num_frames, pixels = cap
            lines.append(
                f"pixels    qwen_vl_utils gives a frame of {num_frames:,} at most {pixels:,}, "
                f"fewer than max_pixels={budget.max_pixels:,}"
            )
    return list(dict.fromkeys(lines))


def _failure_lines(failures: Sequence[tuple[str, str]]) -> list[str]:
    lines = [f"no frames {path}: {reason}" for path, reason in failures[:SHOWN_FAILURES]]
    if (others := len(failures) - SHOWN_FAILURES) > 0:
        lines.append(f"no frames and {others:,} others")
    return lines


def _refuse_what_does_not_fit(
    findings: Findings, reused: Sequence["ClipJob"], config: PreprocessConfig, rules: "FamilyRules"
) -> None:
    from easyvideor1.preprocess.fitting import MARGIN, Case, fits, settings_that_fit
    from easyvideor1.preprocess.headers import read_headers

    case = Case(
        groups=findings.groups,
        budgets=config.budget,
        rules=rules,
        codec=config.cache.codec,
        trials=findings.trials,
    )
    needed = case.needed()
    if fits(needed, findings.free_bytes):
        return
    cached = read_headers(reused, config, is_cached=True).groups
    options = settings_that_fit(
        dataclasses.replace(case, groups=(*case.groups, *cached)), findings.free_bytes
    )
    ways = [
        f"{' '.join(option.overrides)} (about {bytes_text(option.num_bytes)})" for option in options
    ]
    settings = (
        f"These settings would fit: {'; '.join(ways)}. Or" if ways else "No setting would fit;"
    )
    raise UserError(
        f"the missing frames need {amount_text(needed, bytes_text)} as {config.cache.codec.value} "
        f"and {MARGIN - 1:.0%} beyond that, but {findings.folder} has "
        f"{bytes_text(findings.free_bytes)} free. {settings} name another disk by cache.dir, or "
        "fewer samples by data.filter"
    )


def amount_text(amount: "Amount", text_of: Callable[[float], str]) -> str:
    """E.g. `90.6 GB`, or `about 90.6 GB (88.1 GB to 93.1 GB)` for an extrapolation."""
    value = text_of(amount.value)
    if amount.is_exact:
        return value
    return f"about {value} ({text_of(amount.low)} to {text_of(amount.high)})"


def bytes_text(num_bytes: float) -> str:
    """E.g. `90.6 GB`, in powers of 1,000 as disks are sold."""
    value = float(f"{num_bytes:.3g}")
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.{2 if value < 10 else 0}f} TB"


def count_text(count: float) -> str:
    return f"{count:,.0f}"


def hours_text(hours: float) -> str:
    """E.g. `2.3 hours`, `14 minutes` or `80 seconds`."""
    if hours >= 1:
        return f"{hours:,.1f} hours"
    if hours >= 2 / 60:
        return f"{hours * 60:.0f} minutes"
    return f"{hours * 3600:.0f} seconds"
