"""What a sample shows, as an instruction names it."""

from easyvideor1.schema.records import MediaKind, Sample


def shown(sample: Sample) -> str:
    """`image`, `images`, `video`, `videos` or `images and videos`; empty without media."""
    kinds = [medium.kind for medium in sample.media]
    numbers = {kind: kinds.count(kind) for kind in MediaKind}
    if not kinds:
        return ""
    if all(numbers.values()):
        return "images and videos"
    kind = kinds[0].value
    return kind if len(kinds) == 1 else f"{kind}s"
