"""Official rules of benchmarks whose questions are of several kinds, one script each.

VSI-Bench, OVO-Bench, ODV-Bench, TempCompass and LiveSports-3K. Faults of the scripts are kept;
the strict reading beside them is the honest one.
"""

import re

from easyvideor1.evaluate.benchmark_config import ExtractorConfig
from easyvideor1.evaluate.official.reading import Reading, compared, judged
from easyvideor1.rewards.judge import Grade
from easyvideor1.rewards.tasks.regression import mean_relative_accuracy
from easyvideor1.schema.records import ProblemType, Sample


def vsi_bench(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The text before the first space, without dots at its end: a letter in any case, or a number.

    A number scores the mean relative accuracy, in doubles. Source: vision-x-nyu/thinking-in-space,
    lmms_eval/tasks/vsibench/utils.py.
    """
    word = text.split(" ")[0].rstrip(".").strip()
    if not word:
        return Reading()
    if sample.options:
        right = word.lower() == str(sample.answer).lower()
        return Reading(extracted=word, accuracy=float(right))
    try:
        value = float(word)
    except ValueError:
        return Reading()
    accuracy = mean_relative_accuracy(value, float(str(sample.answer)))
    return Reading(extracted=word, accuracy=accuracy)


def ovo_bench(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """Right if the gold letter, or Yes or No, stands anywhere; a count is all digits together.

    Source: JoeLeelyf/OVO-Bench, utils/OVOBenchScore.py.
    """
    if not text:
        return Reading()
    if sample.problem_type is ProblemType.numerical:
        digits = "".join(re.findall(r"\d+", text))
        return Reading(extracted=digits or None, accuracy=float(digits == str(sample.answer)))
    gold = str(sample.answer)
    short = sample.problem_type is ProblemType.boolean and text == gold[0]
    return Reading(extracted=text, accuracy=float(short or gold in text))


_SIGNS = ';/[]"{}()=+\\_->@<`,?!'
_OPTION = re.compile(r"([A-E])\.\s*(.+)$", re.IGNORECASE)
_LETTER = re.compile(r"\b([A-E])\b", re.IGNORECASE)
_DOT = re.compile(r"\.(?!\d)")
_THOUSANDS = re.compile(r"\d,\d")


def odv_bench(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The letter that opens `B. blue`, else the first letter of A to E that stands alone.

    Signs are taken out, or become spaces where none touches a space, before it is looked for; the
    article "a" is a letter. Source: MCG-NJU/StreamForest, lmms_eval/tasks/odvbench/utils.py.
    """
    if text == "":
        return Reading()
    stripped = text.strip()
    option = _OPTION.match(stripped)
    match = option or _LETTER.search(_without_signs(stripped.replace("\n", " ").replace("\t", " ")))
    extracted = match[1].upper() if match else stripped
    return Reading(extracted=extracted, accuracy=float(extracted == sample.answer))


def _without_signs(text: str) -> str:
    has_thousands = _THOUSANDS.search(text) is not None
    plain = text
    for sign in _SIGNS:
        touches = f"{sign} " in text or f" {sign}" in text
        plain = plain.replace(sign, "" if touches or has_thousands else " ")
    # The script passes a flag where the count stands, so that 32 dots are taken out.
    return _DOT.sub("", plain, count=int(re.UNICODE))


def first_character(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The first character."""
    return compared(text.strip()[:1], sample)


def tempcompass(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """By word matching as far as that goes; a judge decides about the rest and about captions.

    Source: llyx97/TempCompass, eval_multi-choice.py, eval_yes_no.py, eval_caption_matching.py and
    eval_captioning.py.
    """
    text = text.replace("</s>", "").strip()
    if not text:
        return Reading()
    task = sample.extra.get("task", "multi-choice")
    if task == "captioning":
        question, gold = str(sample.extra["mc_question"]), str(sample.extra["mc_answer"])
        return Reading(extracted=text, judge=Grade(question, gold, text))
    match = _TEMPCOMPASS[task](text, sample)
    return judged(text, sample) if match is None else Reading(extracted=text, accuracy=match)


def _multi_choice(text: str, sample: Sample) -> float | None:
    """A letter from A to D alone, or before a dot or a bracket; or the whole answer."""
    letter = str(sample.answer)
    gold = f"{letter}. {sample.options[ord(letter) - ord('A')]}"
    if text == gold:
        return 1.0
    if text[:1] in ("A", "B", "C", "D") and (len(text) == 1 or text[1] in ".)"):
        return float(text[0] == letter)
    return None


def _yes_no(text: str, sample: Sample) -> float | None:
    said = next((word for word in ("yes", "no") if text.lower().startswith(word)), None)
    return None if said is None else float(said == str(sample.answer).lower())


def _caption_matching(text: str, sample: Sample) -> float | None:
    """A whole option, its sentence, or its name with or without "Option" and the like."""
    lines = list(sample.options)
    heads = [line.split(": ")[0] for line in lines]
    sentences = [line.split(": ")[1] for line in lines]
    short = [re.sub("Sentence |Option |Caption ", "", head) for head in heads]
    said = None
    if text in lines:
        said = text
    after = text.split(") ")[1] if ") " in text else None
    for sentence in sentences:
        if sentence in (text, after):
            said = sentence
    for name in [*heads, *short]:
        if name in (text, text.replace(".", "")):
            said = name
    if said is None:
        return None
    gold = lines["AB".index(str(sample.answer))]
    head, sentence = gold.split(": ")[0], gold.split(": ")[1]
    return float(said in (gold, gold.split(":")[0], sentence, head.split()[1]))


_TEMPCOMPASS = {
    "multi-choice": _multi_choice,
    "yes_no": _yes_no,
    "caption_matching": _caption_matching,
}
