"""Whether the engine reads a prompt as the learner will: the same tokens, the same grids.

Checked after vLLM has expanded the prompt and before it generates, so that a prompt on which the
two sides differ costs nothing and teaches nothing.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip
    from easyvideor1.preprocess.families import FamilyAdapter


def too_large_medium(
    family: "FamilyAdapter", clips: "Sequence[Clip]", max_tokens: int
) -> str | None:
    """Why the engine cannot encode one of the clips, or None."""
    for number, clip in enumerate(clips, start=1):
        tokens = math.prod(family.patch_grid(clip)) // family.rules.merge_size**2
        if tokens > max_tokens:
            return (
                f"medium {number} has {tokens} vision tokens, the engine encodes at most "
                f"{max_tokens} at once; raise engine.max_num_batched_tokens to {tokens}, or lower "
                f"the {clip.kind.value} budget"
            )
    return None


def disagreement(
    family: "FamilyAdapter",
    prompt_token_ids: Sequence[int],
    clips: "Sequence[Clip]",
    rendered: dict[str, Any],
) -> str | None:
    """What differs between vLLM's rendering of a prompt and the learner's, or None.

    Args:
        family: adapter of the model.
        prompt_token_ids: unexpanded.
        clips: one per medium.
        rendered: vLLM's `EngineInput` of the same prompt.
    """
    ours, theirs = family.expanded_token_ids(prompt_token_ids, clips), rendered["prompt_token_ids"]
    if list(theirs) != ours:
        return _first_difference(theirs, ours)
    return _grid_difference(family, clips, rendered.get("mm_kwargs") or {})


def _first_difference(theirs: Sequence[int], ours: Sequence[int]) -> str:
    where = next(
        (i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b),
        min(len(theirs), len(ours)),
    )
    tokens = [str(ids[where]) if where < len(ids) else "none" for ids in (theirs, ours)]
    return (
        f"its prompt has {len(theirs)} tokens in the engine and {len(ours)} for the learner; the "
        f"first difference is at {where}: {tokens[0]} against {tokens[1]}"
    )


def _grid_difference(
    family: "FamilyAdapter", clips: "Sequence[Clip]", mm_kwargs: dict[str, Any]
) -> str | None:
    for kind in ("image", "video"):
        ours = [family.patch_grid(clip) for clip in clips if clip.kind.value == kind]
        for number, (item, grid) in enumerate(zip(mm_kwargs.get(kind, []), ours, strict=False), 1):
            # A medium from vLLM's cache comes without its data; it was compared the first time.
            if item is None or f"{kind}_grid_thw" not in item:
                continue
            theirs = tuple(item[f"{kind}_grid_thw"].data.flatten().tolist())
            if theirs != grid:
                return (
                    f"the patch grid of {kind} {number} is {theirs} in the engine and {grid} for "
                    "the learner"
                )
    return None
