"""Tiny random models, written as ordinary Hugging Face folders.

They let every command run on a laptop without a download: one to two million parameters, the
family's real architecture, a small tokenizer of their own. Everything after `build` loads them
exactly as it loads a published checkpoint.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from easyvideor1.preprocess.built import BUILD_FILE, build_folder, differing_settings
from easyvideor1.preprocess.config import ModelConfig, TinyModelConfig
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, ProcessorMixin

CONTROL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

ANSWER_TOKENS = ("<think>", "</think>", "<answer>", "</answer>")
"""One token each, and ordinary text: as Qwen's tokenizers treat `<think>`."""

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for item in message.content -%}
{%- if item.type == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>
{%- elif item.type == 'video' -%}<|vision_start|><|video_pad|><|vision_end|>
{%- else -%}{{ item.text }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""

# The words of short questions about short clips, so that prompts stay short in tokens. Any other
# text works as well: unknown words fall apart into bytes.
VOCABULARY = """
user assistant system think answer final question option options choice letter letters number time
seconds second start end from to between at of in on for with within by is are was does do did has
have the a an and or not no yes true false which what when where how many who why this that these
there it its they clip video videos image images frame frames shown show shows see seen watch
first last before after during while between left right up down top bottom middle still moving
move moves moved turn turns appear appears visible whole colour color red green blue yellow white
black grey orange purple pink brown square squares circle circles triangle triangles shape shapes
object objects person people man woman child animal bird rabbit dog cat bike bikes car road tree
trees sky grass street room wall house phone hand hands head face give write reply reason
reasoning briefly brief short sentence sentences word words only inside tags tag put then your you
please use like as example correct best following exactly one two three four five six seven eight
nine ten zero decimal digits digit text form json describe description same different answered
interval
"""


def ensure_model(config: ModelConfig) -> str:
    """The path or hub id to load, after building the tiny model if the config asks for one.

    Raises:
        UserError: for a path that looks local and does not exist.
    """
    if config.build is not None:
        path = resolve_output(config.path)
        if not (path / "config.json").is_file():
            build(config.build, path)
        _refuse_other_build(config.build, path)
        return str(path)
    path = Path(config.path).expanduser()
    if path.exists():
        if not (path / "config.json").is_file():
            raise UserError(f"model.path={path} has no config.json; give a Hugging Face folder")
        return str(path)
    anchored = resolve_output(config.path)
    if (anchored / "config.json").is_file():
        return str(anchored)
    looks_local = config.path.startswith((".", "/", "~", "outputs/")) or config.path.count("/") != 1
    if looks_local:
        raise UserError(f"model.path={config.path} does not exist; give a folder or a hub id")
    return config.path


def _refuse_other_build(config: TinyModelConfig, path: Path) -> None:
    """A model built under other settings must not pass for the one asked for."""
    if not (path / BUILD_FILE).is_file():
        raise UserError(
            f"model.path={path} is not a tiny model of ours; drop model.build to load it"
        )
    if differing := differing_settings(path, config):
        raise UserError(
            f"model.path={path} was built with "
            f"{ {key: was for key, (was, _) in differing.items()} }, "
            f"the config asks for { {key: now for key, (_, now) in differing.items()} }; "
            "set another model.path or delete it"
        )


def build(config: TinyModelConfig, path: Path) -> None:
    """Write a randomly initialised model, processor and tokenizer to `path`, all or nothing.

    Raises:
        UserError: for a family without a tiny builder; the text lists the known.
    """
    if config.family not in _BUILDERS:
        known = ", ".join(sorted(_BUILDERS))
        raise UserError(f"no tiny model of family {config.family!r}; known: {known}")
    build_folder(path, config, _BUILDERS[config.family])


def _build_qwen3_vl(config: TinyModelConfig, folder: Path) -> None:
    import torch
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    tokenizer = build_tokenizer(config.vocab_size)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in CONTROL_TOKENS}
    quarter = config.head_dim // 8
    model_config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": config.text_hidden,
            "intermediate_size": 2 * config.text_hidden,
            "num_hidden_layers": config.text_layers,
            "num_attention_heads": config.text_heads,
            "num_key_value_heads": max(1, config.text_heads // 2),
            "head_dim": config.head_dim,
            "max_position_embeddings": 32_768,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_interleaved": True,
                # Halves of the head: time, height, width. vLLM checks that they sum to half.
                "mrope_section": [config.head_dim // 2 - 2 * quarter, quarter, quarter],
            },
            "bos_token_id": None,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={
            "depth": config.vision_depth,
            "hidden_size": config.vision_hidden,
            "intermediate_size": 2 * config.vision_hidden,
            "num_heads": config.vision_heads,
            "out_hidden_size": config.text_hidden,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": list(range(config.vision_depth))[: config.text_layers],
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        tie_word_embeddings=True,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = Qwen3VLForConditionalGeneration(model_config).to(torch.float32)
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    # Both processors normalise alike: vLLM applies the image processor's mean to videos too.
    normalise = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    patches = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**patches, **normalise),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**patches, **normalise),
        chat_template=CHAT_TEMPLATE,
    )
    _save(model, processor, folder)


def _save(model: object, processor: "ProcessorMixin", folder: Path) -> None:
    model.save_pretrained(folder)  # type: ignore[attr-defined]
    processor.save_pretrained(folder)


def build_tokenizer(vocab_size: int) -> "PreTrainedTokenizerFast":
    """A byte-level BPE tokenizer that knows `VOCABULARY` as whole words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(CONTROL_TOKENS) - len(ANSWER_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_tokenizer_text(), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens={
            "image_token": "<|image_pad|>",
            "video_token": "<|video_pad|>",
            "vision_bos_token": "<|vision_start|>",
            "vision_eos_token": "<|vision_end|>",
        },
    )
    fast.add_tokens(list(ANSWER_TOKENS))
    fast.add_tokens(list(CONTROL_TOKENS), special_tokens=True)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _tokenizer_text() -> Iterator[str]:
    # The word after a space most often, so that these merges win a place before any other.
    for word in VOCABULARY.split():
        yield from [f" {word}"] * 8
        yield from [word.capitalize(), word]
    yield from ['{"time":[', "]}"] * 32


_BUILDERS = {"qwen3_vl": _build_qwen3_vl}
