"""Objectives, aggregation, KL and correction beside TRL's GRPOTrainer, on a real tiny model.

TRL's loss is one method over padded rows, so it runs as a whole: the same model, the same
completions, and its loss and gradients against ours. Where TRL means something else by a constant
or a denominator, the test says so and compares what is the same.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl
from torch import Tensor

from easyvideor1.train.aggregation import denominator_part, token_shares
from easyvideor1.train.algorithm_config import (
    Aggregation,
    CorrectionConfig,
    Level,
    ObjectiveConfig,
    ObjectiveName,
)
from easyvideor1.train.correction import correct
from easyvideor1.train.kl import k3
from easyvideor1.train.objectives import OBJECTIVES, weighted_sum

NUM_TOKENS = 24  # of the vocabulary
LENGTHS = (6, 3, 1, 8)
CONSTANT_LENGTH = 12

DAPO = ObjectiveConfig(clip_low=0.2, clip_high=0.28)
GSPO = ObjectiveConfig(name=ObjectiveName.gspo, clip_low=0.05, clip_high=0.06)
CISPO = ObjectiveConfig(name=ObjectiveName.cispo, clip_low=None, clip_high=0.5)
SAPO = ObjectiveConfig(name=ObjectiveName.sapo)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TRL's trainer around a random language model in evaluation mode; log-probs in float64."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = {f"w{i}": i for i in range(NUM_TOKENS)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")),
        eos_token="w1",
        pad_token="w2",
        unk_token="w0",
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=NUM_TOKENS,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            initializer_range=0.5,
        )
    )
    # A mapping, because not all of the base classes' fields are known to a type checker.
    arguments: dict[str, Any] = {
        "output_dir": str(tmp_path_factory.mktemp("trl")),
        "per_device_train_batch_size": len(LENGTHS),
        "num_generations": len(LENGTHS),
        "max_completion_length": CONSTANT_LENGTH,
        "bf16": False,
        "use_cpu": True,
        "report_to": [],
        "gradient_checkpointing": False,
        "use_bias_correction_kl": False,
    }
    built = trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(**arguments),
        train_dataset=Dataset.from_list([{"prompt": "w3"}]),
        processing_class=tokenizer,
    )
    built.model.eval()
    forward = built._get_per_token_logps_and_entropies

    def in_float64(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None, None]:
        # TRL's fused head computes in float32; what follows would differ by its rounding alone.
        logprobs, entropies, _ = forward(*args, **kwargs)
        return logprobs.double(), entropies, None

    built._get_per_token_logps_and_entropies = in_float64
    return built


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Padded rows as TRL takes them; B completions, L tokens of the longest."""

    inputs: dict[str, Tensor]
    logprobs_BL: Tensor
    engine_BL: Tensor

    @property
    def mask_BL(self) -> Tensor:
        """True where a token is one."""
        return self.inputs["completion_mask"].bool()

    def flat(self, name: str) -> Tensor:
        """A padded input as tokens one after another."""
        return self.inputs[name][self.mask_BL]

    @property
    def sequences_T(self) -> Tensor:
        """Row of each token."""
        return self.mask_BL.nonzero()[:, 0]


def rows(trainer: Any) -> Rows:
    """Random completions whose policies differ by about 0.3 at a token; log-probs with gradient."""
    generator = torch.Generator().manual_seed(5)
    longest = max(LENGTHS)
    lengths = torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(3, NUM_TOKENS, (len(LENGTHS), 4 + longest), generator=generator)
    mask = (torch.arange(longest) < lengths).long()
    prompt_mask = torch.ones(len(LENGTHS), 4, dtype=torch.long)
    logprobs_BL = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, torch.cat([prompt_mask, mask], 1), longest
    )[0]

    def near() -> Tensor:
        noise = torch.randn(logprobs_BL.shape, generator=generator, dtype=torch.float64)
        return logprobs_BL.detach() + 0.3 * noise

    inputs = {
        "prompt_ids": ids[:, :4],
        "prompt_mask": prompt_mask,
        "completion_ids": ids[:, 4:],
        "completion_mask": mask,
        "advantages": torch.tensor([1.0, -0.5, 2.0, -1.5], dtype=torch.float64),
        "old_per_token_logps": near(),
        "ref_per_token_logps": near(),
        "num_items_in_batch": mask.sum(),
    }
    return Rows(inputs=inputs, logprobs_BL=logprobs_BL, engine_BL=near())


def gradient(loss: Tensor, trainer: Any) -> Tensor:
    """Of all the model's weights, as one vector."""
    parameters = [p for p in trainer.model.parameters() if p.requires_grad]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])


def theirs(trainer: Any, data: Rows, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Tensor:
    """TRL's loss under these settings, of which some are the trainer's and some its arguments'."""
    for name, value in settings.items():
        monkeypatch.setattr(trainer if hasattr(trainer, name) else trainer.args, name, value)
    return trainer._compute_loss(trainer.model, data.inputs)


def ours(
    data: Rows,
    config: ObjectiveConfig,
    aggregation: Aggregation,
    *,
    kl_coefficient: float = 0.0,
    correction: CorrectionConfig | None = None,
) -> Tensor:
    """The same from the pure functions over flat tokens."""
    logprobs_T, sequences_T = data.logprobs_BL[data.mask_BL], data.sequences_T
    weights_T = torch.ones_like(logprobs_T)
    old_T = data.flat("old_per_token_logps")
    loss_T = OBJECTIVES[config.name](
        logprobs_T, old_T, data.inputs["advantages"][sequences_T], sequences_T, weights_T, config
    ).loss_T
    if correction is not None:
        engine_T = data.engine_BL[data.mask_BL]
        loss_T = loss_T * correct(old_T, engine_T, sequences_T, weights_T, correction).weights_T
    loss_T = loss_T + kl_coefficient * k3(logprobs_T, data.flat("ref_per_token_logps"))
    shares_T = token_shares(weights_T, sequences_T, aggregation)
    return weighted_sum(loss_T, shares_T) / denominator_part(
        weights_T, sequences_T, aggregation, CONSTANT_LENGTH
    )


def assert_same(mine: Tensor, yours: Tensor, trainer: Any) -> None:
    """The same loss, and the same gradient of every weight."""
    assert mine.item() == pytest.approx(yours.item(), rel=1e-9)
    expected = gradient(yours, trainer)
    assert expected.abs().max() > 1e-3
    assert torch.allclose(gradient(mine, trainer), expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    ("config", "aggregation", "settings"),
    [
        pytest.param(
            DAPO,
            Aggregation.token_mean,
            {"loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.28},
            id="dapo",
        ),
        pytest.param(
            DAPO,
            Aggregation.sequence_mean,
            {"loss_type": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.28},
            id="grpo",
        ),
        # Their constant is max_completion_length, ours constant_length, by default the same.
        pytest.param(
            DAPO,
            Aggregation.constant,
            {"loss_type": "dr_grpo", "epsilon_low": 0.2, "epsilon_high": 0.28},
            id="dr_grpo",
        ),
        # Their two-sided clip is the dual clip, as long as delta is not below 1 + epsilon_high.
        pytest.param(
            replace(DAPO, dual_clip=1.3),
            Aggregation.token_mean,
            {"loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.28, "delta": 1.3},
            id="dual_clip",
        ),
        # Their GSPO is the ratio of sequences with the loss called grpo.
        pytest.param(
            GSPO,
            Aggregation.sequence_mean,
            {
                "loss_type": "grpo",
                "importance_sampling_level": "sequence",
                "epsilon_low": 0.05,
                "epsilon_high": 0.06,
            },
            id="gspo",
        ),
        # TRL has no GSPO-token; with one advantage per completion it is GSPO.
        pytest.param(
            replace(GSPO, name=ObjectiveName.gspo_token),
            Aggregation.sequence_mean,
            {
                "loss_type": "grpo",
                "importance_sampling_level": "sequence",
                "epsilon_low": 0.05,
                "epsilon_high": 0.06,
            },
            id="gspo_token",
        ),
        # Their epsilon_high is where CISPO's weight ends, ours is how far above 1.
        pytest.param(
            CISPO,
            Aggregation.token_mean,
            {"loss_type": "cispo", "epsilon_high": 1.5},
            id="cispo",
        ),
        # They can average SAPO over sequences only, as the paper does; and they round its
        # steepness to float32, which 1.05 does not survive and 1.0625 does.
        pytest.param(
            replace(SAPO, gate_negative=1.0625),
            Aggregation.sequence_mean,
            {"loss_type": "sapo", "sapo_temperature_neg": 1.0625},
            id="sapo",
        ),
    ],
)
def test_losses_and_gradients_are_trls(trainer, monkeypatch, config, aggregation, settings):
    data = rows(trainer)
    mine = ours(data, config, aggregation)
    assert_same(mine, theirs(trainer, data, monkeypatch, **settings), trainer)


def test_trls_defaults_are_ours():
    """Constants of the papers that both take over; where they differ the recipes say so."""
    arguments = SimpleNamespace(**trl.GRPOConfig.__dataclass_fields__)
    epsilon = arguments.epsilon.default
    assert ObjectiveConfig().ratio_range == (1 - epsilon, 1 + epsilon)
    assert arguments.sapo_temperature_pos.default == SAPO.gate_positive
    assert arguments.sapo_temperature_neg.default == SAPO.gate_negative


def test_the_kl_in_the_loss_is_trls_k3(trainer, monkeypatch):
    data = rows(trainer)
    mine = ours(data, DAPO, Aggregation.token_mean, kl_coefficient=0.5)
    settings = {"loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.28, "beta": 0.5}
    assert_same(mine, theirs(trainer, data, monkeypatch, **settings), trainer)
    # TRL's default multiplies it by the ratio pi / pi_old (arXiv 2512.02556), with the
    # gradient flowing through both: that is another penalty, also on policy.
    data = rows(trainer)
    corrected = theirs(trainer, data, monkeypatch, **settings, use_bias_correction_kl=True)
    logprobs_T = data.logprobs_BL[data.mask_BL]
    kl_T = k3(logprobs_T, data.flat("ref_per_token_logps"))
    ratio_T = (logprobs_T - data.flat("old_per_token_logps")).exp()
    mine = ours(data, DAPO, Aggregation.token_mean) + 0.5 * (ratio_T * kl_T).mean()
    assert_same(mine, corrected, trainer)


@pytest.mark.parametrize("aggregation", Aggregation)
def test_the_correction_enters_where_trls_does(trainer, monkeypatch, aggregation):
    """What is left out keeps its place in the denominator there too, and the KL is not weighed.

    TRL computes its ratio within the method that generates, so it is written out here. Its modes
    `token_mask` and `sequence_mask` keep the ratio inside the bounds and put 0 outside; ours are
    that with a cap at the upper bound.
    """
    low, high = 0.8, 1.3
    data = rows(trainer)
    difference_BL = (data.inputs["old_per_token_logps"] - data.engine_BL) * data.mask_BL
    ratio_BL = difference_BL.exp()
    ratio_BL = ratio_BL.masked_fill((ratio_BL < low) | (ratio_BL > high), 0.0)
    assert 0 < (ratio_BL[data.mask_BL] == 0).double().mean() < 1
    data.inputs["importance_sampling_ratio"] = ratio_BL
    loss_type = {
        Aggregation.token_mean: "dapo",
        Aggregation.sequence_mean: "grpo",
        Aggregation.constant: "dr_grpo",
    }[aggregation]
    yours = theirs(
        trainer,
        data,
        monkeypatch,
        loss_type=loss_type,
        epsilon_low=0.2,
        epsilon_high=0.28,
        beta=0.5,
        use_vllm=True,
    )
    correction = CorrectionConfig(
        weight=Level.token,
        weight_cap=high,
        reject=Level.token,
        reject_low=low,
        reject_high=high,
    )
    mine = ours(data, DAPO, aggregation, kl_coefficient=0.5, correction=correction)
    assert_same(mine, yours, trainer)
