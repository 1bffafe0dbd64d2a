"""What every model family offers: prompts, engine inputs and learner inputs from the same clips.

The prompt has one canonical form, unexpanded token ids with one placeholder per medium. The engine
expands it itself (expanded ids would be expanded again); `learner_inputs` expands it to the ids the
engine reports. A family adds how a clip is written in tokens. Called by evaluate's engine, by the
learner and by the prompt-length check; imports no torch until it is called.
"""

import copy
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from easyvideor1.preprocess.families.checks import (
    check_features,
    check_frame_times,
    check_placeholders,
    check_sizes,
    check_told_times,
)
from easyvideor1.preprocess.families.mrope import Grid, mrope_positions, positions_after
from easyvideor1.preprocess.rules import rules_of
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.placeholders import split_problem
from easyvideor1.schema.records import Media, MediaKind, Sample

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from easyvideor1.preprocess.clip import Clip, ClipLike

TEXT, IMAGE, VIDEO = 0, 1, 2
"""Values of `mm_token_type_ids`, as transformers defines them."""

_TOKEN_TYPES = {MediaKind.image: IMAGE, MediaKind.video: VIDEO}
_PIXELS = {MediaKind.image: "pixel_values", MediaKind.video: "pixel_values_videos"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBlock:
    """A run of text tokens, or the tokens of one visual grid, in an expanded prompt."""

    token_ids: list[int]
    kind: int = TEXT
    grid: Grid | None = None
    """Of a visual block, in tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextTokens:
    """A text in L tokens."""

    token_ids: list[int]
    """[L]"""
    spans: list[tuple[int, int]]
    """[L] first character that a token stands for, and the one after its last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptInputs:
    """A prompt as the model's forward takes it, without a batch dimension. P tokens, N patches."""

    token_ids: list[int]
    """[P] expanded; equal to the `prompt_token_ids` vLLM reports for the same prompt."""
    position_ids: "Tensor"
    """int64 [3, P]: time, height, width."""
    mm_token_type_ids: "Tensor"
    """int64 [P]: 0 text, 1 image, 2 video."""
    pixel_values: "Tensor | None" = None
    """float32 [N, d] patches of all images, in order."""
    image_grid_thw: "Tensor | None" = None
    """int64 [images, 3] patches in time, height, width before merging."""
    pixel_values_videos: "Tensor | None" = None
    """float32 [N, d] patches of all videos, in order."""
    video_grid_thw: "Tensor | None" = None
    """int64 [videos, 3]"""


class FamilyAdapter(ABC):
    """The seam between a sample with its clips and a model of one family.

    Attributes:
        processor: the Hugging Face processor of the checkpoint.
        tokenizer: its tokenizer.
        rules: factors read from the processor.
        eos_token_ids: tokens that end an answer; the first closes a turn and is the one to append
            to an offline trajectory.
        forbidden_token_ids: ids that may never be sampled: control and vision tokens and ids
            without a token. Engine and learner mask the same ones.
    """

    has_linear_attention: ClassVar[bool] = False
    """Whether layers of the language model carry a recurrent state in place of a KV cache."""

    def __init__(
        self,
        model_path: str,
        config: Any,
        trust_remote_code: bool = False,
        template: Mapping[str, Any] | None = None,
    ):
        from transformers import AutoProcessor

        self._origin = (model_path, config, trust_remote_code, template)
        self._template = dict(template or {})
        self.config = config
        try:
            self.processor: Any = AutoProcessor.from_pretrained(
                model_path, trust_remote_code=trust_remote_code
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"model.path={model_path}: its processor cannot be loaded: {error}"
            ) from error
        self.tokenizer: Any = self.processor.tokenizer
        self._check_processor(model_path)
        self.rules = rules_of(self.processor.video_processor, config.model_type)
        self.eos_token_ids = self._end_tokens(model_path)
        self.forbidden_token_ids = self._never_sampled()

    def __reduce__(self):
        """Travel as the path: a pickled Rust tokenizer forgets its switches."""
        return type(self), self._origin

    # What a family defines

    @abstractmethod
    def video_blocks(self, clip: "ClipLike") -> list[TokenBlock]:
        """What one video placeholder expands to."""

    @abstractmethod
    def video_metadata(self, clip: "Clip") -> dict[str, Any]:
        """vLLM's description of a video that is already sampled."""

    def told_times_s(self, clip: "ClipLike") -> tuple[list[float], list[float]]:
        """Times of a video that its tokens spell out, and those of its temporal patches.

        Both are empty in a family that tells none.
        """
        return [], []

    # Prompts

    def prompt_token_ids(self, sample: Sample, instruction: str) -> list[int]:
        """The sample as one user turn, unexpanded: one placeholder per medium.

        The turn is the problem with its media in place, the lettered options, the instruction.
        Text of the data stays text, also where it reads like a control token.

        Args:
            sample: the question.
            instruction: what the model is told about the form of its answer.

        Raises:
            UserError: if placeholders and media of the sample disagree.
        """
        content, texts = [], []
        for piece in [*split_problem(sample), closing_text(sample, instruction)]:
            if isinstance(piece, Media):
                content.append({"type": piece.kind.value})
            elif piece:
                content.append({"type": "text", "text": _mark(len(texts))})
                texts.append(piece)
        turn = [{"role": "user", "content": content}]
        return self._fill_template(self._render(turn, add_generation_prompt=True), texts)

    def text_tokens(self, text: str) -> TextTokens:
        """`text` in tokens, control tokens spelled out as the characters they are.

        With `eos_token_ids[0]` appended this is an offline trajectory.
        """
        encoding = self._plain_tokenizer.encode(text, add_special_tokens=False)
        return TextTokens(token_ids=encoding.ids, spans=encoding.offsets)

    def text_token_ids(self, text: str) -> list[int]:
        """The ids of `text_tokens`."""
        return self.text_tokens(text).token_ids

    def has_control_text(self, text: str) -> bool:
        """Whether `text` reads like a control token somewhere; it is plain text all the same."""
        return self._control_pattern.search(text) is not None

    def num_prompt_tokens(
        self, prompt_token_ids: Sequence[int], clips: Sequence["ClipLike"]
    ) -> int:
        """Length of the prompt once its placeholders are expanded; needs no pixels."""
        return len(self.expanded_token_ids(prompt_token_ids, clips))

    def expanded_token_ids(
        self, prompt_token_ids: Sequence[int], clips: Sequence["ClipLike"]
    ) -> list[int]:
        """The prompt as the model sees it, every placeholder expanded; needs no pixels."""
        blocks = self._expand(prompt_token_ids, clips)
        return [token for block in blocks for token in block.token_ids]

    def num_medium_tokens(self, clip: "ClipLike") -> int:
        """What one placeholder expands to: visual tokens, and those that tell their times."""
        return sum(len(block.token_ids) for block in self._medium_blocks(clip))

    def patch_grid(self, clip: "ClipLike") -> tuple[int, int, int]:
        """Patches of a clip in time, height and width, before merging; needs no pixels."""
        height, width = clip.shape[2:]
        return (
            1 if clip.kind is MediaKind.image else self._num_patch_times(clip),
            height // self.rules.patch_size,
            width // self.rules.patch_size,
        )

    def num_patches(self, clips: Sequence["ClipLike"]) -> int:
        """Patches that the vision tower computes for these clips; needs no pixels."""
        return sum(math.prod(self.patch_grid(clip)) for clip in clips)

    def check_inputs(
        self, prompt_token_ids: Sequence[int], clips: Sequence["Clip"], *, sample_id: str = ""
    ) -> None:
        """Refuse a prompt and clips that do not belong together; reads no pixels.

        Args:
            prompt_token_ids: of `prompt_token_ids`, unexpanded.
            clips: one per medium, in the order of the sample.
            sample_id: for the error text.

        Raises:
            ModelInputError: naming the sample and both numbers if placeholders and clips, sizes
                and the family's factor, tokens and features, or times and frames disagree.
        """
        self._checked_blocks(prompt_token_ids, clips, sample_id)

    def _checked_blocks(
        self, prompt_token_ids: Sequence[int], clips: Sequence["Clip"], sample_id: str
    ) -> list[TokenBlock]:
        """The expanded prompt, once `check_inputs` holds."""
        check_placeholders(prompt_token_ids, clips, self._placeholder_kinds, sample_id)
        check_sizes(clips, self.rules, sample_id)
        check_frame_times(clips, sample_id)
        blocks = self._expand(prompt_token_ids, clips)
        for kind in MediaKind:
            num_tokens = sum(len(b.token_ids) for b in blocks if b.kind == _TOKEN_TYPES[kind])
            num_patches = self.num_patches([clip for clip in clips if clip.kind is kind])
            check_features(kind, num_tokens, num_patches // self.rules.merge_size**2, sample_id)
        for number, clip in enumerate(clips, start=1):
            if clip.kind is MediaKind.video:
                told_s, true_s = self.told_times_s(clip)
                check_told_times(told_s, true_s, number, sample_id)
        return blocks

    # Engine

    def engine_inputs(
        self, prompt_token_ids: Sequence[int], clips: Sequence["Clip"], *, sample_id: str = ""
    ) -> dict[str, Any]:
        """vLLM's `TokensPrompt`: unexpanded ids and frames that are neither sampled nor resized.

        Args:
            prompt_token_ids: of `prompt_token_ids`.
            clips: one per medium, in the order of the sample.
            sample_id: for the error text.

        Raises:
            ModelInputError: see `check_inputs`.
        """
        self.check_inputs(prompt_token_ids, clips, sample_id=sample_id)
        inputs: dict[str, Any] = {"prompt_token_ids": list(prompt_token_ids)}
        if not clips:
            return inputs
        data: dict[str, list[Any]] = {}
        uuids: dict[str, list[str]] = {}
        for clip in clips:
            frames = _channels_last(clip.frames)
            is_video = clip.kind is MediaKind.video
            medium = (frames, self.video_metadata(clip)) if is_video else frames[0]
            data.setdefault(clip.kind.value, []).append(medium)
            uuids.setdefault(clip.kind.value, []).append(clip.key)
        return inputs | {
            "multi_modal_data": data,
            # Names the medium in vLLM's caches, which then need not hash the pixels.
            "multi_modal_uuids": uuids,
            "mm_processor_kwargs": {"do_resize": False},
        }

    # Learner

    def learner_inputs(
        self, prompt_token_ids: Sequence[int], clips: Sequence["Clip"], *, sample_id: str = ""
    ) -> PromptInputs:
        """The same prompt as the learner's forward takes it: expanded, with positions and patches.

        Args:
            prompt_token_ids: of `prompt_token_ids`, unexpanded.
            clips: one per medium, in the order of the sample.
            sample_id: for the error text.

        Raises:
            ModelInputError: see `check_inputs`, and if the processor makes other patches of the
                clips than their shapes say.
        """
        import torch

        blocks = self._checked_blocks(prompt_token_ids, clips, sample_id)
        kinds = [block.kind for block in blocks for _ in block.token_ids]
        patches = self._patches(clips)
        for kind, name in _PIXELS.items():
            num_patches = len(patches[name]) if name in patches else 0
            num_tokens = kinds.count(_TOKEN_TYPES[kind])
            check_features(kind, num_tokens, num_patches // self.rules.merge_size**2, sample_id)
        return PromptInputs(
            token_ids=[token for block in blocks for token in block.token_ids],
            position_ids=mrope_positions([b.grid or len(b.token_ids) for b in blocks]),
            mm_token_type_ids=torch.tensor(kinds),
            **patches,
        )

    def position_ids_after(self, prompt_position_ids: "Tensor", num_tokens: int) -> "Tensor":
        """Positions of `num_tokens` text tokens after a prompt, int64 [3, num_tokens]."""
        return positions_after(prompt_position_ids, num_tokens)

    # Building the prompt

    def _render(self, messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> str:
        return self.processor.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            **self._template,
        )

    def _fill_template(self, rendered: str, texts: Sequence[str]) -> list[int]:
        """Tokens of a rendered template: its control tokens, and text with the marks filled in.

        The template never sees the texts, so that they can neither close a turn nor open one.
        Text between two control tokens is encoded as one, as the processor does.
        """
        ids: list[int] = []
        for part in self._control_pattern.split(rendered):
            if part in self._control_tokens:
                ids.append(self._control_tokens[part])
            elif part:
                ids += self.text_token_ids(_MARK.sub(lambda m: texts[int(m[1])], part))
        return ids

    @cached_property
    def _control_tokens(self) -> dict[str, int]:
        """Special tokens, and added ones of the same look that a tokenizer calls ordinary."""
        return {
            token.content: token_id
            for token_id, token in self.tokenizer.added_tokens_decoder.items()
            if token.special or re.fullmatch(r"<\|.+\|>", token.content)
        }

    @cached_property
    def _control_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._control_tokens, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    @cached_property
    def _plain_tokenizer(self) -> Any:
        """The tokenizer without its control tokens. A copy: the switch is not per call in Rust."""
        from tokenizers import AddedToken

        plain = copy.deepcopy(self.tokenizer.backend_tokenizer)
        plain.add_special_tokens(
            [AddedToken(text, special=True, normalized=False) for text in self._control_tokens]
        )
        plain.encode_special_tokens = True
        return plain

    # Expanding it

    def _expand(
        self, prompt_token_ids: Sequence[int], clips: Sequence["ClipLike"]
    ) -> list[TokenBlock]:
        # The n-th video placeholder is the n-th video, whatever images stand between.
        remaining = {
            kind: iter([clip for clip in clips if clip.kind is kind]) for kind in MediaKind
        }
        blocks: list[TokenBlock] = []
        text: list[int] = []
        for token_id in prompt_token_ids:
            if token_id not in self._placeholder_kinds:
                text.append(token_id)
                continue
            kind = self._placeholder_kinds[token_id]
            clip = next(remaining[kind])
            blocks += [TokenBlock(token_ids=text), *self._medium_blocks(clip)]
            text = []
        return [block for block in [*blocks, TokenBlock(token_ids=text)] if block.token_ids]

    def _medium_blocks(self, clip: "ClipLike") -> list[TokenBlock]:
        return (
            self.video_blocks(clip) if clip.kind is MediaKind.video else [self._image_block(clip)]
        )

    def _image_block(self, clip: "ClipLike") -> TokenBlock:
        grid = Grid(1, *self._merged_size(clip))
        token_ids = [self.processor.image_token_id] * (grid.height * grid.width)
        return TokenBlock(token_ids=token_ids, kind=IMAGE, grid=grid)

    def _num_patch_times(self, clip: "ClipLike") -> int:
        """Temporal patches of a video; an incomplete last one is filled up."""
        return -(-clip.shape[0] // self.rules.temporal_patch_size)

    def _merged_size(self, clip: "ClipLike") -> tuple[int, int]:
        """Rows and columns of visual tokens in one frame."""
        height, width = clip.shape[2:]
        return height // self.rules.factor, width // self.rules.factor

    @cached_property
    def _placeholder_kinds(self) -> dict[int, MediaKind]:
        return {
            self.processor.image_token_id: MediaKind.image,
            self.processor.video_token_id: MediaKind.video,
        }

    def _patches(self, clips: Sequence["Clip"]) -> dict[str, "Tensor"]:
        """Pixel values and grids by the checkpoint's own processors."""
        import torch

        # torch.tensor copies: the frames may be a read-only map of the cache.
        images = [torch.tensor(c.frames[0]) for c in clips if c.kind is MediaKind.image]
        videos = [torch.tensor(c.frames) for c in clips if c.kind is MediaKind.video]
        patches: dict[str, Tensor] = {}
        if images:
            patches |= self.processor.image_processor(
                images=images, do_resize=False, return_tensors="pt"
            )
        if videos:
            patches |= self.processor.video_processor(
                videos=videos,
                do_resize=False,
                do_sample_frames=False,
                # It concerns resizing, which is done; unset, every process prints a warning.
                cap_pixels_per_frame=False,
                return_tensors="pt",
            )
        return patches

    # Checks

    def _check_processor(self, model_path: str) -> None:
        """Images and videos go through one vision tower, and vLLM normalises both as images."""
        image, video = self.processor.image_processor, self.processor.video_processor
        for setting in ("patch_size", "merge_size", "temporal_patch_size"):
            if getattr(image, setting) != getattr(video, setting):
                raise UserError(_differs(model_path, setting, image, video))
        for setting in ("image_mean", "image_std"):
            if list(getattr(image, setting)) != list(getattr(video, setting)):
                raise UserError(_differs(model_path, setting, image, video))

    # Vocabulary

    def _end_tokens(self, model_path: str) -> tuple[int, ...]:
        from transformers import GenerationConfig

        try:
            generation = GenerationConfig.from_pretrained(model_path)
        except OSError:
            # A checkpoint need not have one; the template then says all there is.
            generation = GenerationConfig()
        listed = generation.eos_token_id
        listed = [] if listed is None else [listed] if isinstance(listed, int) else listed
        end_of_turn = self._end_of_turn(model_path)
        padding = {self.tokenizer.pad_token_id, generation.pad_token_id}
        others = [token for token in listed if token != end_of_turn and token not in padding]
        return (end_of_turn, *others)

    def _end_of_turn(self, model_path: str) -> int:
        """The token that the chat template writes after an answer."""
        rendered = self._render(
            [
                {"role": "user", "content": [{"type": "text", "text": _mark(0)}]},
                {"role": "assistant", "content": [{"type": "text", "text": _mark(1)}]},
            ],
            add_generation_prompt=False,
        )
        _, _, rest = rendered.partition(_mark(1))
        end = self._control_pattern.match(rest)
        if end is None:
            raise UserError(
                f"model.path={model_path}: its chat template ends an answer with {rest!r}, "
                "not with a control token; give a checkpoint with a chat template"
            )
        return self._control_tokens[end[0]]

    def _never_sampled(self) -> tuple[int, ...]:
        vocab_size = self.config.get_text_config().vocab_size
        without_token = set(range(vocab_size)) - set(self.tokenizer.get_vocab().values())
        control = set(self._control_tokens.values()) - set(self.eos_token_ids)
        return tuple(sorted(without_token | control))


_MARK = re.compile("\ue000(\\d+)\ue001")
"""Private-use characters stand for a text of the data while the template is rendered."""


def _mark(number: int) -> str:
    return f"\ue000{number}\ue001"


def closing_text(sample: Sample, instruction: str) -> str:
    """What follows the problem: options one a line, then the instruction."""
    return "".join(f"\n{line}" for line in [*sample.lettered_options, instruction] if line)


def _channels_last(frames: "np.ndarray") -> "np.ndarray":
    """uint8 [T, 3, H, W] to contiguous [T, H, W, 3]."""
    import numpy as np

    return np.ascontiguousarray(frames.transpose(0, 2, 3, 1))


def _differs(model_path: str, setting: str, image: Any, video: Any) -> str:
    return (
        f"model.path={model_path}: {setting} is {getattr(image, setting)} for images and "
        f"{getattr(video, setting)} for videos; the engine would treat both as images, "
        "so make them equal in processor_config.json"
    )
