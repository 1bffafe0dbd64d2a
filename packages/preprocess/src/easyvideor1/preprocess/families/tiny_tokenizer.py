"""The tokenizer of the tiny models: bytes, and the words of short questions as whole tokens."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

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
