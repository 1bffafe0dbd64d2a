"""The `algorithm` group: what is optimised, as settings whose names are those of the papers.

A recipe of `conf/algorithm/` sets them; `config.TrainConfig` checks them against the rest. The
functions behind the names are in `advantages`, `objectives`, `offline_objectives`, `aggregation`,
`kl` and `correction`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from easyvideor1.schema.errors import UserError


class AdvantageName(StrEnum):
    """How the rewards of a step become advantages."""

    grpo = "grpo"
    """Group mean and deviation."""
    group_mean = "group_mean"
    """Group mean alone: Dr.GRPO."""
    rloo = "rloo"
    """Mean of the other completions of the group."""
    reinforce_pp = "reinforce_pp"
    """Returns, whitened over all tokens of the step: REINFORCE++."""
    reinforce_pp_baseline = "reinforce_pp_baseline"
    """Group mean, then whitened over all tokens of the step."""
    remax = "remax"
    """Reward of the greedy answer."""
    gdpo = "gdpo"
    """Each part of the reward normalised by itself, then whitened over the step."""
    ema_grpo = "ema_grpo"
    """Group mean, and a moving deviation per task."""
    t_grpo = "t_grpo"
    """GRPO with a bonus where answers are better with the frames in order than shuffled."""
    pass_at_k = "pass_at_k"
    """The best of k completions."""


class Whitening(StrEnum):
    """Over what a step's mean and deviation are taken."""

    sequence = "sequence"
    """Every completion counts once."""
    token = "token"
    """Every completion counts as often as it has tokens."""


@dataclass(kw_only=True, slots=True)
class AdvantageConfig:
    """How rewards become advantages. Each option names the estimators that read it."""

    name: AdvantageName = AdvantageName.grpo
    epsilon: float = 1e-6
    """Added to a deviation before dividing by it; `group_mean`, `rloo` and `remax` have none."""
    discount: float = 1.0
    """`reinforce_pp`: of the rewards of later tokens."""
    keys: dict[str, float] = field(default_factory=dict)
    """`gdpo`: weight of each part of the reward; `kl` is the penalty of `kl.place=reward`, of which
    only this weight counts and not `kl.coefficient`."""
    whiten: Whitening = Whitening.sequence
    """`gdpo`: over what the sum of the parts is whitened."""
    ema_decay: float = 0.99
    """`ema_grpo`: share of the old moments that stays at each step."""
    ema_clip: float = 5.0
    """`ema_grpo`: largest size of an advantage."""
    control_size: int | None = None
    """`t_grpo`: completions per prompt with shuffled frames; null: half of rollout.group_size."""
    control_factor: float = 1.0
    """`t_grpo`: the bonus is given where the share of right answers is at least so many times the
    control's."""
    control_bonus: float = 0.3
    """`t_grpo`: added to the reward of right answers."""
    right_from: float = 0.5
    """`t_grpo`: an answer of at least this accuracy is right."""
    k: int = 4
    """`pass_at_k`: completions of which the best counts."""

    def __post_init__(self) -> None:
        where = "algorithm.advantage"
        if self.epsilon <= 0:
            raise UserError(f"{where}.epsilon must be above 0, got {self.epsilon}")
        if not 0 < self.discount <= 1 or not 0 <= self.ema_decay < 1:
            raise UserError(
                f"{where} needs 0 < discount <= 1 and 0 <= ema_decay < 1, got "
                f"discount={self.discount} and ema_decay={self.ema_decay}"
            )
        if self.ema_clip <= 0:
            raise UserError(f"{where}.ema_clip must be above 0, got {self.ema_clip}")
        if self.name is AdvantageName.gdpo and not any(self.keys.values()):
            raise UserError(
                f"{where}.name=gdpo needs {where}.keys with at least one part whose weight is not "
                f"0, got {dict(self.keys)}; algorithm=gdpo has accuracy and format, further parts "
                f"are added by +{where}.keys.NAME=1"
            )
        if self.k < 1 or (self.control_size is not None and self.control_size < 1):
            raise UserError(
                f"{where} needs k and control_size of at least 1, got k={self.k} and "
                f"control_size={self.control_size}"
            )
        if self.control_factor < 0 or self.control_bonus < 0:
            raise UserError(
                f"{where} needs control_factor and control_bonus of at least 0, got "
                f"{self.control_factor} and {self.control_bonus}"
            )


class ObjectiveName(StrEnum):
    """How the policy loss of a token uses its advantage."""

    clip = "clip"
    """PPO's clipped surrogate, with separate bounds as in DAPO."""
    gspo = "gspo"
    """Clipped ratio of whole sequences, normalised by their length."""
    gspo_token = "gspo_token"
    """GSPO's ratio with gradients per token."""
    cispo = "cispo"
    """Clipped importance weight, without gradient, times log pi."""
    sapo = "sapo"
    """A smooth gate in place of the clip."""
    unclipped = "unclipped"
    """The ratio times the advantage, without bounds: LUFFY."""


class ClipBounds(NamedTuple):
    """How far below and above 1 a ratio may lie."""

    low: float | None
    """None: no lower bound."""
    high: float


CLIP_BOUNDS = {
    ObjectiveName.clip: ClipBounds(0.2, 0.2),
    ObjectiveName.gspo: ClipBounds(3e-4, 4e-4),
    ObjectiveName.gspo_token: ClipBounds(3e-4, 4e-4),
    ObjectiveName.cispo: ClipBounds(None, 4.0),
}
"""Bounds of the objectives that have some, where the config names none.

Sources: PPO, arXiv 1707.06347; GSPO, arXiv 2507.18071, section 5.1; CISPO: MiniMax-M1, arXiv
2506.13585, has no lower bound and does not tell its upper one; ScaleRL, arXiv 2510.13786, caps the
weight at 5.
"""


@dataclass(kw_only=True, slots=True)
class ObjectiveConfig:
    """The loss of a token. Each option names the objectives that read it."""

    name: ObjectiveName = ObjectiveName.clip
    clip_low: float | None = None
    """The ratio is held above 1 - clip_low; null: `clip` 0.2, `gspo` and `gspo_token` 3e-4, `cispo`
    no lower bound."""
    clip_high: float | None = None
    """The ratio is held below 1 + clip_high; null: `clip` 0.2, `gspo` and `gspo_token` 4e-4,
    `cispo` 4."""
    dual_clip: float | None = None
    """`clip`: where the advantage is negative, the loss is at most so many times its size."""
    gate_positive: float = 1.0
    """`sapo`: steepness of the gate where the advantage is positive."""
    gate_negative: float = 1.05
    """`sapo`: steepness of the gate elsewhere."""

    def __post_init__(self) -> None:
        where, name = "algorithm.objective", self.name
        if self.clip_low is not None and not 0 < self.clip_low < 1:
            raise UserError(f"{where}.clip_low must lie between 0 and 1, got {self.clip_low}")
        if self.clip_high is not None and self.clip_high <= 0:
            raise UserError(f"{where}.clip_high must be above 0, got {self.clip_high}")
        is_bounded = self.clip_low is not None or self.clip_high is not None
        if is_bounded and name not in CLIP_BOUNDS:
            raise UserError(
                f"{where}.name={name} holds the ratio within no bounds, got "
                f"clip_low={self.clip_low} and clip_high={self.clip_high}; set both to null"
            )
        if self.dual_clip is not None:
            if name is not ObjectiveName.clip:
                raise UserError(
                    f"{where}.dual_clip is for {where}.name=clip; {name} has none, set it to null"
                )
            if self.dual_clip <= 1:
                raise UserError(
                    f"{where}.dual_clip must be above 1 (3 is usual), got {self.dual_clip}"
                )
        if self.gate_positive <= 0 or self.gate_negative <= 0:
            raise UserError(
                f"{where} needs gate_positive and gate_negative above 0, got "
                f"{self.gate_positive} and {self.gate_negative}"
            )

    @property
    def ratio_range(self) -> tuple[float, float]:
        """Smallest and largest ratio: 1 - low and 1 + high. A side without a bound is 0 or inf."""
        default = CLIP_BOUNDS.get(self.name)
        if default is None:
            return 0.0, inf
        low = default.low if self.clip_low is None else self.clip_low
        high = default.high if self.clip_high is None else self.clip_high
        return 0.0 if low is None else 1 - low, 1 + high


class OfflineTreatment(StrEnum):
    """What the loss makes of the tokens of offline completions."""

    as_policy = "as_policy"
    """As if the policy had sampled them."""
    luffy = "luffy"
    """Their advantage, times pi / (pi + gamma)."""
    chord = "chord"
    """Imitation beside the policy loss, which is over sampled completions alone."""


class OfflineNegative(StrEnum):
    """What becomes of an offline completion that is worse than the baseline of its group."""

    keep = "keep"
    """It is trained on as any other."""
    drop = "drop"
    """It is left out of the update: it was mixed in to be learned from."""


@dataclass(kw_only=True, slots=True)
class OfflineConfig:
    """The loss of offline completions, which `mixing` puts into the groups.

    Each option names the treatments that read it.
    """

    treatment: OfflineTreatment = OfflineTreatment.as_policy
    in_baseline: bool = True
    """Whether their rewards are part of the baseline of their group; false needs
    `advantage.name=group_mean`, or `chord`, whose imitation reads no advantage."""
    negative: OfflineNegative = OfflineNegative.drop
    """`as_policy`, `luffy`: what becomes of a completion with a negative advantage."""
    behaviour_logprobs: bool = True
    """`as_policy`, `luffy`: where the data tell the log-probs of who wrote a trajectory, mu, its
    tokens are weighed by pi / mu, held below `behaviour_cap`."""
    behaviour_cap: float = 2.0
    gamma: float = 0.1
    """`luffy`: at a probability of gamma the weight is one half."""
    mu_peak: float = 0.1
    """`chord`: share of imitation in the loss after the warm-up; the policy loss has the rest."""
    mu_valley: float = 0.1
    """`chord`: its share after the decay, a half cosine."""
    mu_warmup_updates: int = 0
    """`chord`: optimizer updates over which it rises from 0."""
    mu_decay_updates: int = 0
    """`chord`: optimizer updates over which it falls from peak to valley."""
    phi: bool = False
    """`chord`: weigh the imitation of each token by p (1 - p), p its probability."""
    phi_detach: bool = True
    """`chord`: treat that weight as a constant, as the authors do."""

    def __post_init__(self) -> None:
        where = "algorithm.offline"
        if self.gamma <= 0 or self.behaviour_cap <= 0:
            raise UserError(
                f"{where} needs gamma and behaviour_cap above 0, got gamma={self.gamma} and "
                f"behaviour_cap={self.behaviour_cap}"
            )
        if not 0 <= self.mu_valley <= self.mu_peak <= 1:
            raise UserError(
                f"{where} needs 0 <= mu_valley <= mu_peak <= 1, got mu_valley={self.mu_valley} and "
                f"mu_peak={self.mu_peak}"
            )
        if self.mu_warmup_updates < 0 or self.mu_decay_updates < 0:
            raise UserError(
                f"{where}.mu_warmup_updates and mu_decay_updates must not be negative, got "
                f"{self.mu_warmup_updates} and {self.mu_decay_updates}"
            )


class Aggregation(StrEnum):
    """How the losses of tokens become one. Always over all micro-batches of all ranks."""

    token_mean = "token_mean"
    """Every token counts the same: DAPO."""
    sequence_mean = "sequence_mean"
    """Mean over completions of the mean over their tokens: GRPO, GSPO."""
    constant = "constant"
    """Mean over completions of the sum over their tokens divided by a constant: Dr.GRPO."""


class KlPlace(StrEnum):
    """Where the divergence from the reference policy enters."""

    none = "none"
    loss = "loss"
    reward = "reward"


class KlEstimator(StrEnum):
    """How the divergence is estimated at a token; d is log pi - log pi_ref of the token."""

    k1 = "k1"
    """d"""
    k2 = "k2"
    """d^2 / 2"""
    k3 = "k3"
    """exp(-d) - 1 + d"""
    abs = "abs"
    """|d|"""
    full = "full"
    """The divergence itself, over the vocabulary."""


class KlController(StrEnum):
    """How the coefficient changes from step to step."""

    fixed = "fixed"
    adaptive = "adaptive"
    """Raised where the divergence is above its target, lowered where it is below."""


MAX_KL_ERROR = 0.2
"""The adaptive controller reacts to no larger relative distance from its target."""


@dataclass(kw_only=True, slots=True)
class KlConfig:
    """Divergence from the reference policy: the weights that reinforcement learning began with."""

    place: KlPlace = KlPlace.none
    """Anything but `none` keeps a second copy of the model; with LoRA, of its adapters alone."""
    estimator: KlEstimator = KlEstimator.k3
    coefficient: float = 0.04
    """What the divergence is multiplied by; of the first step, where it is adaptive."""
    controller: KlController = KlController.fixed
    target: float = 0.1
    """`adaptive`: divergence per token, in nats."""
    horizon: int = 10_000
    """`adaptive`: completions within which the coefficient follows."""

    def __post_init__(self) -> None:
        if self.coefficient <= 0 or self.target <= 0 or self.horizon < 1:
            raise UserError(
                "algorithm.kl needs coefficient and target above 0 and a horizon of at least 1, "
                f"got coefficient={self.coefficient} target={self.target} horizon={self.horizon}; "
                "algorithm.kl.place=none does without"
            )
        if self.place is KlPlace.none and self.controller is KlController.adaptive:
            raise UserError(
                "algorithm.kl.controller=adaptive needs algorithm.kl.place=loss or reward, got "
                "none: there is no coefficient to change; or set algorithm.kl.controller=fixed"
            )
        if self.place is KlPlace.loss and self.estimator is KlEstimator.k1:
            raise UserError(
                "algorithm.kl.estimator=k1 with algorithm.kl.place=loss pulls nowhere: its "
                "gradient is 0 in the mean; take k2, k3 or full, or algorithm.kl.place=reward"
            )


class Level(StrEnum):
    """What a correction looks at."""

    none = "none"
    token = "token"
    sequence = "sequence"


@dataclass(kw_only=True, slots=True)
class CorrectionConfig:
    """Rollout correction: what the engine's probabilities differ by from the learner's.

    The ratio is that of the learner's probability of what was sampled, under the weights that
    sampled it, to the engine's. Completions without the engine's log-probs are not corrected.
    """

    weight: Level = Level.none
    """Multiply the loss by the ratio, held below `weight_cap`: of each token, or of each completion
    as a whole (truncated importance sampling)."""
    weight_cap: float = 2.0
    reject: Level = Level.none
    """Leave out tokens whose ratio, or completions whose geometric mean ratio per token, lies
    outside `reject_low` to `reject_high`."""
    reject_low: float = 0.5
    reject_high: float = 5.0

    def __post_init__(self) -> None:
        if self.weight_cap < 1:
            raise UserError(
                "algorithm.correction.weight_cap must be at least 1, so that equal probabilities "
                f"stay as they are, got {self.weight_cap}"
            )
        if not 0 <= self.reject_low < 1 < self.reject_high:
            raise UserError(
                "algorithm.correction needs 0 <= reject_low < 1 < reject_high, so that equal "
                f"probabilities are kept, got {self.reject_low} and {self.reject_high}"
            )

    @property
    def is_on(self) -> bool:
        """Whether anything is corrected."""
        return self.weight is not Level.none or self.reject is not Level.none


@dataclass(kw_only=True, slots=True)
class DynamicSamplingConfig:
    """DAPO's dynamic sampling: prompts whose group teaches nothing are replaced by further ones."""

    enabled: bool = False
    key: str = "accuracy"
    """The part of the reward that must differ within a group."""
    max_draws: int = 10
    """Rollouts for one step; the run ends where they do not fill a batch."""

    def __post_init__(self) -> None:
        if self.max_draws < 1:
            raise UserError(
                f"algorithm.dynamic_sampling.max_draws must be at least 1, got {self.max_draws}"
            )


@dataclass(kw_only=True, slots=True)
class AlgorithmConfig:
    """The `algorithm` group: what is optimised. Choose a recipe, then change single settings."""

    name: str = "grpo"
    """Of the recipe; it names the run's folder."""
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    aggregation: Aggregation = Aggregation.sequence_mean
    constant_length: int | None = None
    """`constant`: what the sum over a completion is divided by; null: rollout.max_new_tokens."""
    kl: KlConfig = field(default_factory=KlConfig)
    entropy_bonus: float = 0.0
    """What the entropy of each token's distribution is multiplied by before it lowers the loss."""
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)
    offline: OfflineConfig = field(default_factory=OfflineConfig)
    dynamic_sampling: DynamicSamplingConfig = field(default_factory=DynamicSamplingConfig)

    def __post_init__(self) -> None:
        if self.constant_length is not None and self.constant_length < 1:
            raise UserError(
                f"algorithm.constant_length must be at least 1 or null, got {self.constant_length}"
            )
        if self.entropy_bonus < 0:
            raise UserError(
                f"algorithm.entropy_bonus must not be negative, got {self.entropy_bonus}"
            )
        self._check_objective()
        self._check_advantage()
        self._check_offline()

    def _check_objective(self) -> None:
        name = self.objective.name
        if name is ObjectiveName.gspo and self.aggregation is not Aggregation.sequence_mean:
            raise UserError(
                f"algorithm.objective.name=gspo has one loss per completion and needs "
                f"algorithm.aggregation=sequence_mean, got {self.aggregation}; gspo_token takes any"
            )

    def _check_advantage(self) -> None:
        advantage = self.advantage
        in_reward = self.kl.place is KlPlace.reward
        has_key = "kl" in advantage.keys
        if advantage.name is AdvantageName.gdpo and in_reward and not has_key:
            raise UserError(
                "algorithm.kl.place=reward does not reach algorithm.advantage.name=gdpo, which "
                "normalises the parts of the reward one by one; name it as one, e.g. "
                "+algorithm.advantage.keys.kl=1, or set algorithm.kl.place=loss"
            )
        if advantage.name is AdvantageName.gdpo and has_key:
            self._check_kl_key()
        varies = advantage.name is AdvantageName.reinforce_pp and (
            in_reward or advantage.discount < 1
        )
        if varies and self.objective.name is ObjectiveName.gspo:
            raise UserError(
                "algorithm.objective.name=gspo needs one advantage per completion; reinforce_pp "
                "with a KL in the reward or a discount has one per token: take gspo_token"
            )

    def _check_kl_key(self) -> None:
        """GDPO normalises the penalties by themselves, which no coefficient changes."""
        where = "algorithm.advantage.keys.kl"
        if self.kl.place is not KlPlace.reward:
            raise UserError(f"{where} needs algorithm.kl.place=reward, got {self.kl.place}")
        if self.advantage.keys["kl"] == 0:
            raise UserError(
                f"{where}=0 leaves out the KL that algorithm.kl.place=reward asks for; give it a "
                f"weight, or set algorithm.kl.place=none and ~{where}"
            )
        if self.kl.controller is KlController.adaptive:
            raise UserError(
                f"algorithm.kl.controller=adaptive changes nothing under {where}: each part is "
                "normalised by itself, which cancels the coefficient; set "
                f"algorithm.kl.controller=fixed and choose {where}"
            )

    def _check_offline(self) -> None:
        offline, estimator = self.offline, self.advantage.name
        if offline.treatment is OfflineTreatment.chord:
            if offline.in_baseline:
                raise UserError(
                    "algorithm.offline.treatment=chord keeps offline completions out of the policy "
                    "loss and needs algorithm.offline.in_baseline=false"
                )
        elif not offline.in_baseline and estimator is not AdvantageName.group_mean:
            raise UserError(
                f"algorithm.offline.in_baseline=false goes with algorithm.advantage.name="
                f"{AdvantageName.group_mean}, got {estimator}: where all sampled completions "
                "failed there is no deviation to divide by"
            )
