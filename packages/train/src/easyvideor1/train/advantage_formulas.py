"""The formulas of the advantage estimators: float64 tensors in, float64 tensors out.

Each states its source. A deviation is the sample deviation (divisor n - 1) unless a formula says
otherwise. Whatever has no spread becomes exactly 0, so that rounding is never divided by epsilon.
"""

from collections.abc import Callable
from math import comb

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

# Legend: P prompts, N completions of all of them in order, T tokens of all of these that the loss
# counts, G completions of one prompt, C of its control, K parts of a reward.

ROUNDING = 1e-9  # what is smaller is an error of rounding


def group_mean(rewards_N: Tensor, groups_N: Tensor) -> Tensor:
    """Reward less the mean of the group: A_i = r_i - mean(r).

    Source: Dr.GRPO, arXiv 2503.20783, section 3.2.

    Args:
        rewards_N: [N] rewards.
        groups_N: [N] index of the prompt, from 0.

    Returns:
        [N] advantages; exactly 0 where all rewards of a group are the same.
    """
    counts_P = groups_N.bincount()
    zeros_P = rewards_N.new_zeros(len(counts_P))
    means_P = zeros_P.index_add(0, groups_N, rewards_N) / counts_P
    lowest_P = zeros_P.scatter_reduce(0, groups_N, rewards_N, "amin", include_self=False)
    highest_P = zeros_P.scatter_reduce(0, groups_N, rewards_N, "amax", include_self=False)
    tied_N = (lowest_P == highest_P)[groups_N]
    return torch.where(tied_N, 0.0, rewards_N - means_P[groups_N])


def grpo(rewards_N: Tensor, groups_N: Tensor, *, epsilon: float) -> Tensor:
    """Group-normalised reward: A_i = (r_i - mean(r)) / (std(r) + epsilon).

    Source: DeepSeekMath, arXiv 2402.03300, section 4.1.2, which leaves out epsilon and the divisor
    of std; n - 1 and 1e-6 are those of verl (TRL: n - 1 and 1e-4).

    Args:
        rewards_N: [N] rewards.
        groups_N: [N] index of the prompt, from 0.
        epsilon: added to the deviation.

    Returns:
        [N] advantages.
    """
    centred_N = group_mean(rewards_N, groups_N)
    others_P = (groups_N.bincount() - 1).clamp(min=1)
    squares_P = rewards_N.new_zeros(len(others_P)).index_add(0, groups_N, centred_N.square())
    return centred_N / ((squares_P / others_P).sqrt() + epsilon)[groups_N]


def rloo(rewards_N: Tensor, groups_N: Tensor) -> Tensor:
    """Reward less the mean of the others: A_i = r_i - sum_{j != i} r_j / (n - 1).

    Computed as (r_i - mean(r)) n / (n - 1), the same. Source: RLOO, arXiv 2402.14740.

    Args:
        rewards_N: [N] rewards.
        groups_N: [N] index of the prompt, from 0.

    Returns:
        [N] advantages; 0 for a completion without others.
    """
    counts_N = groups_N.bincount()[groups_N]
    return group_mean(rewards_N, groups_N) * counts_N / (counts_N - 1).clamp(min=1)


def whiten(values_N: Tensor, weights_N: Tensor, *, epsilon: float) -> Tensor:
    """(x - mean) / (std + epsilon), where value i counts `weights_N[i]` times.

    Args:
        values_N: [N] values.
        weights_N: [N] how often each counts: whole numbers of at least 0.
        epsilon: added to the deviation.

    Returns:
        [N] whitened values; exactly 0 where all that count are the same.
    """
    counted = values_N[weights_N > 0]
    if len(counted) == 0 or bool((counted == counted[0]).all()):
        return torch.zeros_like(values_N)
    total = weights_N.sum()
    centred_N = values_N - (weights_N * values_N).sum() / total
    variance = (weights_N * centred_N.square()).sum() / (total - 1)
    return centred_N / (variance.sqrt() + epsilon)


def reinforce_pp(
    rewards_N: Tensor,
    penalties_T: Tensor,
    lengths_N: Tensor,
    *,
    discount: float,
    epsilon: float,
) -> Tensor:
    """Discounted return of each token, whitened over all tokens of the step.

    G_t = sum_{s >= t} discount^(s - t) r_s, where r_s is the penalty of token s and, at the last
    one, the reward; A = (G - mean(G)) / (std(G) + epsilon). Source: REINFORCE++, arXiv 2501.03262,
    equations 4 and 5, there without a discount.

    Args:
        rewards_N: [N] rewards without penalties.
        penalties_T: [T] what is added to the reward at each token.
        lengths_N: [N] tokens of each completion.
        discount: of what comes one token later.
        epsilon: added to the deviation.

    Returns:
        [T] advantages.
    """
    at_tokens = [part.clone() for part in penalties_T.split(lengths_N.tolist())]
    for part, reward in zip(at_tokens, rewards_N, strict=True):
        part[-1:] += reward
    padded_NL = pad_sequence(at_tokens, batch_first=True)
    returns_N = torch.zeros_like(rewards_N)
    returns_NL = torch.zeros_like(padded_NL)
    for token in reversed(range(padded_NL.shape[1])):
        returns_N = padded_NL[:, token] + discount * returns_N
        returns_NL[:, token] = returns_N
    returns_T = returns_NL[torch.arange(padded_NL.shape[1]) < lengths_N[:, None]]
    return whiten(returns_T, torch.ones_like(returns_T), epsilon=epsilon)


def reinforce_pp_baseline(
    rewards_N: Tensor, groups_N: Tensor, lengths_N: Tensor, *, epsilon: float
) -> Tensor:
    """Reward less the mean of the group, whitened over all tokens of the step.

    Source: REINFORCE++, arXiv 2501.03262, equations 6 and 7. Every token of a completion has its
    advantage, so a completion counts as often as it has tokens. Where lengths differ, the mean over
    tokens is not 0 and a group without spread gets its negative, as the formula says.

    Args:
        rewards_N: [N] rewards.
        groups_N: [N] index of the prompt, from 0.
        lengths_N: [N] tokens of each completion.
        epsilon: added to the deviation.

    Returns:
        [N] advantages.
    """
    return whiten(group_mean(rewards_N, groups_N), lengths_N, epsilon=epsilon)


def remax(rewards_N: Tensor, greedy_N: Tensor) -> Tensor:
    """Reward less that of the greedy answer to the same prompt: A_i = r_i - r_greedy.

    Source: ReMax, arXiv 2310.10505.

    Args:
        rewards_N: [N] rewards.
        greedy_N: [N] reward of the greedy answer.

    Returns:
        [N] advantages.
    """
    return rewards_N - greedy_N


def gdpo(
    parts_KN: Tensor,
    weights_K: Tensor,
    groups_N: Tensor,
    counts_N: Tensor,
    *,
    epsilon: float,
) -> Tensor:
    """Each part of the reward normalised by itself, summed by weight, whitened over the step.

    A = whiten(sum_k w_k grpo(r^k)). Source: GDPO, arXiv 2601.05242, and its code (NVlabs/GDPO), of
    which the TRL version whitens over completions and the verl version over tokens. A part without
    spread in a group adds exactly 0 to the sum.

    Args:
        parts_KN: [K, N] parts of the rewards.
        weights_K: [K] weight of each part.
        groups_N: [N] index of the prompt, from 0.
        counts_N: [N] how often each completion counts when the sum is whitened.
        epsilon: added to every deviation.

    Returns:
        [N] advantages.
    """
    normalised_KN = torch.stack([grpo(part_N, groups_N, epsilon=epsilon) for part_N in parts_KN])
    return whiten(weights_K @ normalised_KN, counts_N, epsilon=epsilon)


def ema_grpo(
    rewards_N: Tensor, groups_N: Tensor, deviations_N: Tensor, *, clip: float, epsilon: float
) -> Tensor:
    """Reward less the mean of the group, over the moving deviation of its task, held to +-clip.

    A_i = clamp((r_i - mean(r)) / (sigma_task + epsilon), -clip, clip), where sigma_task already
    counts this step. Source: OneThinker, arXiv 2512.03043, equation 11 and the clip of 5 after it.
    (Its code divides a group beyond the clip by its own deviation instead.)

    Args:
        rewards_N: [N] rewards.
        groups_N: [N] index of the prompt, from 0.
        deviations_N: [N] moving deviation of each completion's task, from `TaskMoments`.
        clip: largest size of an advantage.
        epsilon: added to the deviation.

    Returns:
        [N] advantages.
    """
    return (group_mean(rewards_N, groups_N) / (deviations_N + epsilon)).clamp(-clip, clip)


def temporal_bonus(
    accuracies_G: Tensor,
    control_C: Tensor,
    *,
    right_from: float,
    factor: float,
    bonus: float,
) -> Tensor:
    """What T-GRPO adds to the rewards of a group.

    `bonus` for each right answer if p >= factor * p_control, else nothing, where p and p_control
    are the shares of right answers with the frames in order and shuffled. Source: Video-R1, arXiv
    2503.21776, equation 1: bonus 0.3, factor 1, and 0.5 as the accuracy from which an answer is
    right. (Its code has factor 0.8, compares mean accuracies, and takes one above 0.1 for right.)

    Args:
        accuracies_G: [G] accuracies with the frames in order.
        control_C: [C] accuracies with the frames shuffled, at least one.
        right_from: lowest accuracy of a right answer.
        factor: how many times the control's share is needed.
        bonus: added to a right answer.

    Returns:
        [G] what is added to the rewards.
    """
    right_G = (accuracies_G >= right_from).to(accuracies_G.dtype)
    control_share = (control_C >= right_from).to(control_C.dtype).mean()
    earned = bool(right_G.mean() >= factor * control_share - ROUNDING)
    return bonus * right_G if earned else torch.zeros_like(right_G)


def pass_at_k(rewards_G: Tensor, *, k: int, epsilon: float) -> Tensor:
    """Worth of a completion to a random set of k of its group, which counts by its best.

    A_i = (E[best | i in the set] - E[best]) / (std(best) + epsilon), over all sets of k completions
    of the group. With rewards 0 and 1 this is the analytical advantage of Pass@k training, arXiv
    2508.10751: with n answers of which w are wrong, R = 1 - C(w, k) / C(n, k) and
    sigma = sqrt(R (1 - R)), it is (1 - R) / sigma for a right answer and
    (1 - R - C(w - 1, k - 1) / C(n - 1, k - 1)) / sigma for a wrong one; the 1e-6 as its code
    (RUCAIBox/Passk_Training). Other rewards enter by the definition that is solved there.

    Args:
        rewards_G: [G] rewards of one group.
        k: size of the sets, at most G.
        epsilon: added to the deviation.

    Returns:
        [G] advantages; exactly 0 where every set has the same best.
    """
    size = len(rewards_G)
    sorted_G, order_G = rewards_G.sort()
    if sorted_G[k - 1] == sorted_G[-1]:
        return torch.zeros_like(rewards_G)

    def chances(of_rank: Callable[[int], int], sets: int) -> Tensor:
        return rewards_G.new_tensor([of_rank(rank) / sets for rank in range(size)])

    # The best of a set is the one of rank j (0 is the lowest) if the others are below it.
    best_G = chances(lambda rank: comb(rank, k - 1), comb(size, k))
    mean = best_G @ sorted_G
    deviation = (best_G @ (sorted_G - mean).square()).sqrt()
    # The same among the sets that hold i: itself, or one of those above it.
    itself_G = chances(lambda rank: comb(rank, k - 1), comb(size - 1, k - 1))
    above_G = chances(
        lambda rank: comb(rank - 1, k - 2) if rank > 0 and k > 1 else 0, comb(size - 1, k - 1)
    )
    gains_G = above_G * (sorted_G - mean)
    sum_above_G = gains_G.flip(0).cumsum(0).flip(0) - gains_G
    worth_G = itself_G * (sorted_G - mean) + sum_above_G
    return (worth_G / (deviation + epsilon))[order_G.argsort()]
