"""Advantages beside those of TRL's own trainers, which give them to their loss.

TRL computes in float32 and adds 1e-4 to a deviation, our default is 1e-6; nothing else differs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.train.advantages import AdvantageEstimator
from easyvideor1.train.algorithm_config import AdvantageConfig, AdvantageName
from tests.train.algorithms.steps import experience, score

pytestmark = pytest.mark.filterwarnings("ignore:TRL currently supports:UserWarning")

WEIGHTS = {"accuracy": 1.0, "format": 2.0}
ACCURACIES = [1.0, 0.0, 0.0, 1.0, 0.5, 0.25, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
FORMATS = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
GROUP_SIZE = 4
"""Three groups; the second has equal formats, the third is tied."""

Advantages = Callable[..., list[float]]


@pytest.fixture(scope="module")
def of_trl(tmp_path_factory: pytest.TempPathFactory) -> Advantages:
    """Advantages as a trainer of TRL makes them of the rewards above; it samples what is scored."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    words = {word: i for i, word in enumerate(("<pad>", "<end>", "<unk>", "a", "b"))}
    splitter = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    splitter.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=splitter, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"
    )
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(words),
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )
    trainers: dict[str, tuple[Any, Any]] = {
        "grpo": (GRPOTrainer, GRPOConfig),
        "rloo": (RLOOTrainer, RLOOConfig),
    }
    prompts = ["a", "b", "a b"]
    folder: Path = tmp_path_factory.mktemp("trl")

    def accuracy(completions: list[str], **_: Any) -> list[float]:
        return ACCURACIES

    def form(completions: list[str], **_: Any) -> list[float]:
        return FORMATS

    def advantages(kind: str, **options: Any) -> list[float]:
        trainer_class, config_class = trainers[kind]
        trainer = trainer_class(
            model=model,
            reward_funcs=[accuracy, form],
            processing_class=tokenizer,
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
            args=config_class(
                output_dir=str(folder),
                num_generations=GROUP_SIZE,
                per_device_train_batch_size=len(ACCURACIES),
                max_completion_length=2,
                beta=0.0,
                reward_weights=[*WEIGHTS.values()],
                report_to=[],
                use_cpu=True,
                **options,
            ),
        )
        trainer.model.train()
        batch = [{"prompt": prompt} for prompt in prompts for _ in range(GROUP_SIZE)]
        return trainer._generate_and_score_completions(batch)["advantages"].tolist()

    return advantages


def ours(name: str) -> list[float]:
    scores = [
        score(WEIGHTS["accuracy"] * a + WEIGHTS["format"] * f, accuracy=a, format=f)
        for a, f in zip(ACCURACIES, FORMATS, strict=True)
    ]
    config = AdvantageConfig(name=AdvantageName(name), epsilon=1e-4, keys=WEIGHTS)
    groups = [scores[i : i + GROUP_SIZE] for i in range(0, len(scores), GROUP_SIZE)]
    return [value for (value,) in AdvantageEstimator(config)([experience(g) for g in groups])]


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("grpo", "grpo", {}),
        ("group_mean", "grpo", {"scale_rewards": "none"}),
        ("rloo", "rloo", {}),
        ("gdpo", "grpo", {"multi_objective_aggregation": "normalize_then_sum"}),
    ],
)
def test_advantages_are_those_of_trl(of_trl, name, kind, options):
    expected = of_trl(kind, **options)
    assert max(abs(value) for value in expected) > 0.5
    assert ours(name) == pytest.approx(expected, abs=2e-6)
