"""The estimators once more, from the formulas of the papers: plain loops over Python numbers."""

from collections.abc import Sequence
from itertools import combinations
from math import sqrt

from easyvideor1.train.algorithm_config import AdvantageConfig, AdvantageName, Whitening
from easyvideor1.train.interfaces import Experience

Moments = dict[str, tuple[float, float]]
"""First and second moment of each task."""


def slow_advantages(
    config: AdvantageConfig,
    experiences: Sequence[Experience],
    penalties: Sequence[Sequence[float]],
    moments: Moments,
) -> list[list[float]]:
    """The advantage of each token of each completion; updates `moments`."""
    masks = [c.loss_mask for e in experiences for c in e.group.completions]
    if config.name is AdvantageName.reinforce_pp:
        rewards = [reward for e in experiences for reward in e.group.rewards]
        return returns(rewards, penalties, masks, config)
    totals = iter(
        sum(p for p, counts in zip(row, mask, strict=True) if counts)
        for row, mask in zip(penalties, masks, strict=True)
    )
    kl = [[next(totals) for _ in e.group.scores] for e in experiences]
    groups = of_groups(config, experiences, kl, moments)
    flat = whitened(config, groups, masks)
    return [
        [value if counts else 0.0 for counts in mask]
        for value, mask in zip(flat, masks, strict=True)
    ]


def of_groups(
    config: AdvantageConfig,
    experiences: Sequence[Experience],
    kl: list[list[float]],
    moments: Moments,
) -> list[list[float]]:
    """The advantages of each group, before they are whitened."""
    rewards = [
        [reward + penalty for reward, penalty in zip(e.group.rewards, row, strict=True)]
        for e, row in zip(experiences, kl, strict=True)
    ]
    epsilon = config.epsilon
    match config.name:
        case AdvantageName.grpo:
            return [z_scores(group, epsilon) for group in rewards]
        case AdvantageName.group_mean | AdvantageName.reinforce_pp_baseline:
            return [[r - mean(group) for r in group] for group in rewards]
        case AdvantageName.rloo:
            return [
                [r - mean(group[:i] + group[i + 1 :]) for i, r in enumerate(group)]
                for group in rewards
            ]
        case AdvantageName.remax:
            return [
                [r - (e.greedy.value if e.greedy else 0.0) for r in group]
                for e, group in zip(experiences, rewards, strict=True)
            ]
        case AdvantageName.gdpo:
            return [sum_of_parts(config, e, row) for e, row in zip(experiences, kl, strict=True)]
        case AdvantageName.ema_grpo:
            return by_task(config, experiences, rewards, moments)
        case AdvantageName.t_grpo:
            return [
                z_scores([r + b for r, b in zip(group, bonuses(config, e), strict=True)], epsilon)
                for e, group in zip(experiences, rewards, strict=True)
            ]
        case AdvantageName.pass_at_k:
            return [over_sets(group, config.k, epsilon) for group in rewards]
        case _:
            raise AssertionError(f"{config.name} has one advantage per token")


def whitened(
    config: AdvantageConfig, groups: list[list[float]], masks: list[list[bool]]
) -> list[float]:
    flat = [value for group in groups for value in group]
    if config.name not in (AdvantageName.gdpo, AdvantageName.reinforce_pp_baseline):
        return flat
    by_completion = config.name is AdvantageName.gdpo and config.whiten is Whitening.sequence
    counted = [
        value
        for value, mask in zip(flat, masks, strict=True)
        for _ in range(1 if by_completion else sum(mask))
    ]
    return [(x - mean(counted)) / (deviation(counted) + config.epsilon) for x in flat]


def returns(
    rewards: list[float],
    penalties: Sequence[Sequence[float]],
    masks: list[list[bool]],
    config: AdvantageConfig,
) -> list[list[float]]:
    """Discounted sums, token by token, whitened over all tokens that count."""
    rows = []
    for reward, row, mask in zip(rewards, penalties, masks, strict=True):
        chosen = [p for p, counts in zip(row, mask, strict=True) if counts]
        chosen[-1] += reward
        rows.append(
            [
                sum(r * config.discount**distance for distance, r in enumerate(chosen[t:]))
                for t in range(len(chosen))
            ]
        )
    counted = [value for row in rows for value in row]
    middle, spread = mean(counted), deviation(counted) + config.epsilon
    result = []
    for row, mask in zip(rows, masks, strict=True):
        values = iter((value - middle) / spread for value in row)
        result.append([next(values) if counts else 0.0 for counts in mask])
    return result


def sum_of_parts(config: AdvantageConfig, e: Experience, kl: list[float]) -> list[float]:
    total = [0.0] * len(kl)
    for key, weight in config.keys.items():
        part = kl if key == "kl" else [s.parts[key] for s in e.group.scores]
        for i, value in enumerate(z_scores(part, config.epsilon)):
            total[i] += weight * value
    return total


def by_task(
    config: AdvantageConfig,
    experiences: Sequence[Experience],
    rewards: list[list[float]],
    moments: Moments,
) -> list[list[float]]:
    tasks = [e.prompt.sample.problem_type.value for e in experiences]
    for task in set(tasks):
        values = [r for t, group in zip(tasks, rewards, strict=True) for r in group if t == task]
        mu, nu = mean(values), mean([value**2 for value in values])
        m1, m2 = moments.get(task, (mu, nu))
        b = config.ema_decay
        moments[task] = (b * m1 + (1 - b) * mu, b * m2 + (1 - b) * nu)
    result = []
    for task, group in zip(tasks, rewards, strict=True):
        m1, m2 = moments[task]
        sigma = sqrt(m2 - m1**2) + config.epsilon
        limit = config.ema_clip
        result.append([max(-limit, min(limit, (r - mean(group)) / sigma)) for r in group])
    return result


def bonuses(config: AdvantageConfig, e: Experience) -> list[float]:
    right = [s.parts["accuracy"] >= config.right_from for s in e.group.scores]
    control = [s.parts["accuracy"] >= config.right_from for s in e.control]
    # Counts, so that no share is rounded: right / G >= factor * control / C.
    earned = bool(control) and (
        sum(right) * len(control) >= config.control_factor * sum(control) * len(right)
    )
    return [config.control_bonus if earned and one else 0.0 for one in right]


def over_sets(group: list[float], k: int, epsilon: float) -> list[float]:
    """Every set of k completions, as Pass@k training is defined before it is solved."""
    sets = list(combinations(range(len(group)), k))
    best = {members: max(group[i] for i in members) for members in sets}
    middle = mean(list(best.values()))
    sigma = sqrt(mean([(value - middle) ** 2 for value in best.values()]))
    return [
        mean([value - middle for members, value in best.items() if i in members])
        / (sigma + epsilon)
        for i in range(len(group))
    ]


def z_scores(values: list[float], epsilon: float) -> list[float]:
    if len(set(values)) == 1:
        return [0.0] * len(values)
    return [(value - mean(values)) / (deviation(values) + epsilon) for value in values]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def deviation(values: list[float]) -> float:
    return sqrt(sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1))
