"""Official rules for option letters: what each script takes for the letter, faults included.

A rule that finds letters where none is stated is kept as it is, since published scores were read
with it; the strict reading beside it is the honest one. Sources are in `conf/benchmark/`.
"""

import re

from easyvideor1.evaluate.benchmark_config import ExtractorConfig
from easyvideor1.evaluate.official.reading import Reading, compared, with_steps
from easyvideor1.schema.records import Sample


def first_letter(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The prefixes taken out wherever they stand, then the first of the letters, in any word."""
    text = text.strip()
    for prefix in config.prefixes:
        text = text.replace(prefix, "")
    match = re.search(f"[{config.letters}]", text)
    return compared(match[0] if match else "", sample)


_STATED = re.compile(r"(?:answer|option)\s*(?:is|:)\s*([ABCDE])", re.IGNORECASE)


def last_letter(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The last letter stated after "answer" or "option", else the last letter in any word."""
    text = text.strip()
    stated = _STATED.findall(text)
    if stated:
        return compared(stated[-1].upper(), sample)
    for prefix in config.prefixes:
        text = text.replace(prefix, "")
    found = re.findall(f"[{config.letters}]", text)
    return compared(found[-1] if found else "", sample)


def before_bracket(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The character before the first `)`, else the whole text."""
    place = text.find(")")
    return compared(text.strip() if place < 0 else text[max(0, place - 1) : place], sample)


def polished(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The first character of the first word, in brackets if there is one: `(B) blue`, `B blue`."""
    text = text.strip().split(")")[0].strip()
    if "(" in text:
        text = text.split("(")[1].strip()
    return compared(text.split(" ")[0][:1], sample)


def first_word(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The first word of the first line, after the bracket that MVBench opens for the model.

    Right if it is part of the gold `(b)`, or `(b)` part of it. An empty answer is none, although
    the bracket alone is part of every gold one.
    """
    line = text.strip().split("\n")[0]
    if not line:
        return Reading()
    word = f"({line}".lower().split(" ")[0]
    gold = f"({str(sample.answer).lower()})"
    right = word.replace(".", "") in gold or gold in word
    return Reading(extracted=word, accuracy=float(right))


_ANSWER_TAG = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)


def marked_letter(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """In the last answer tag, else in all of the text: `A `, `A:` or `[A`, then any letter.

    Both are looked for from A on, so that a text with several letters is read as the first of the
    alphabet.
    """
    tagged = _ANSWER_TAG.findall(text)
    choice = tagged[-1].strip() if tagged else text
    for forms in (("{} ", "{}:", "[{}"), ("{}",)):
        for letter in config.letters:
            if any(form.format(letter) in choice for form in forms):
                return compared(letter, sample)
    return Reading()


_TAGGED_LINE = re.compile(r"<answer>(?:Therefore the final answer is: )?(.*?)</answer>")


def tagged_text(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The content of the first answer tag on one line, else all of the text, letter for letter."""
    match = _TAGGED_LINE.search(text)
    return compared((match[1] if match else text).strip(), sample)


def videomathqa(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """As `first_letter`; the reasoning of a question with five options is held to its steps."""
    reading = first_letter(text, sample, config)
    return reading if len(sample.options) == 2 else with_steps(reading, text, sample, "steps")
