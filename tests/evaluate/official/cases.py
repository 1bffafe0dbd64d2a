"""Generated questions in each release's layout, with answers of all kinds to hold scorers to.

Deterministic, and free of easyvideor1, so that an official script can be run on the same answers.
A text of None is an answer that is missing: its video could not be read, or it was never given.
"""

import random
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Case = tuple[list[Row], list[str | None]]
"""Rows of the release, and a text for each question in their order."""

WORDS = [
    "amber",
    "basil",
    "cedar",
    "dune",
    "ember",
    "fjord",
    "grove",
    "heath",
    "isle",
    "jade",
    "kelp",
    "larch",
    "moss",
    "nettle",
]
LETTERS = "ABCDEFGHIJKLMN"


def options(rng: random.Random, count: int) -> list[str]:
    return [f"{word} {rng.randint(10, 99)}" for word in rng.sample(WORDS, count)]


def answer_text(rng: random.Random, letter: str, text: str, letters: str) -> str | None:
    """An answer that means `letter`, or one of the many ways not to mean any."""
    other = rng.choice(letters)
    forms: list[str | None] = [
        letter,
        letter,
        f"{letter}.",
        f"{letter}. {text}",
        f"({letter}) {text}",
        f"({letter})",
        f"{letter}) {text}",
        f"**{letter}**",
        f"\\boxed{{{letter}}}",
        f"<answer>{letter}</answer>",
        f"<answer>{letter}. {text}</answer>",
        f"<think>It may be {other}.</think><answer>{letter}</answer>",
        f"<think>It may be {other}.</think>\n{letter}",
        f"The answer is {letter}.",
        f"The best answer is: {letter}",
        f"The answer is A dog, hence {letter}",
        f"Final Answer: {letter}",
        f"Therefore, the final answer is: {letter}",
        f"Best Option: ({letter}) {text}",
        f"答案是{letter}",
        f"选{letter}。",
        text,
        text.upper(),
        f"{letter} and {other}",
        f"{letter}, {other}",
        f"{letter}: {text}\n{other}: no",
        f"[{letter}] {text}",
        "Z",
        "9",
        "",
        " ",
        ")",
        "nothing of it can be seen here, and so on and so forth, in the clip or elsewhere",
        "I cannot tell",
        letter.lower(),
        None,
        None,
    ]
    return rng.choice(forms)


def guesses(rng: random.Random, gold: str, texts: list[str]) -> str | None:
    """An answer, right more often than chance has it."""
    letters = LETTERS[: len(texts)]
    letter = gold if rng.random() < 0.6 else rng.choice(letters)
    return answer_text(rng, letter, texts[letters.index(letter)], letters)


def video_mme() -> Case:
    rng = random.Random("video_mme")
    rows, texts = [], []
    domains = ["Knowledge", "Sports Competition", "Film & Television"]
    subs = ["Astronomy", "Football", "Basketball", "Documentary"]
    tasks = ["Counting Problem", "OCR Problems", "Action Reasoning"]
    for video in range(100):
        shared = {
            "video_id": f"{video + 1:03d}",
            "duration": rng.choice(["short", "medium", "long"]),
            "domain": rng.choice(domains),
            "sub_category": rng.choice(subs),
            "url": f"https://www.youtube.com/watch?v=vid{video}",
            "videoID": f"vid{video}",
        }
        for number in range(1, 4):
            given = options(rng, 4)
            gold = rng.choice("ABCD")
            asked = {
                "question_id": f"{video + 1:03d}-{number}",
                "task_type": rng.choice(tasks),
                "question": f"Question {number} of {video}?",
                "options": [f"{a}. {b}" for a, b in zip("ABCD", given, strict=True)],
                "answer": gold,
            }
            rows.append(shared | asked)
            texts.append(guesses(rng, gold, given))
    return rows, texts


def video_mme_v2() -> Case:
    rng = random.Random("video_mme_v2")
    rows, texts = [], []
    structures = ["[1,2,3,4]", "[1, [2, 3], 4]", "[[1, 2], 3, 4]"]
    for video in range(120):
        kind = rng.choice(["relevance", "logic"])
        for number in range(4):
            given = options(rng, 8)
            gold = rng.choice(LETTERS[:8])
            lettered = "\n".join(f"{a}. {b}" for a, b in zip(LETTERS, given, strict=False))
            rows.append(
                {
                    "video_id": f"{video + 1:03d}",
                    "url": f"https://www.youtube.com/watch?v=vid{video}",
                    "group_type": kind,
                    "group_structure": rng.choice(structures),
                    "question_id": f"{video + 1:03d}-{number + 1}",
                    "question": f"Question {number} of {video}?",
                    "options": lettered,
                    "answer": gold,
                    "level": rng.choice(["1", "2", "3", "None"]),
                    "second_head": rng.choice(["Order", "Space"]),
                    "third_head": rng.choice(["Near", "Far", "Up"]),
                }
            )
            texts.append(gold if rng.random() < 0.5 else guesses(rng, gold, given))
    return rows, texts


def mvbench() -> Case:
    rng = random.Random("mvbench")
    rows, texts = [], []
    for number in range(300):
        given = options(rng, rng.choice([2, 3, 4, 5]))
        gold = rng.randrange(len(given))
        rows.append(
            {
                "file": rng.choice(["action_sequence", "moving_count", "object_shuffle"]),
                "video": f"{number // 2}.mp4",
                "question": f"Question {number}?",
                "candidates": given,
                "answer": given[gold],
                "start": 1.0,
                "end": 4.5,
            }
        )
        texts.append(guesses(rng, LETTERS[gold], given))
    return rows, texts


def motionbench() -> Case:
    rng = random.Random("motionbench")
    rows, texts = [], []
    for number in range(300):
        given = options(rng, rng.choice([2, 3, 4]))
        gold = LETTERS[rng.randrange(len(given))]
        lettered = "\n".join(f"{a}. {b}" for a, b in zip(LETTERS, given, strict=False))
        qa = {"uid": number, "question": f"Question {number}?\n{lettered}", "answer": gold}
        rows.append(
            {
                "key": f"k{number}",
                "question_type": rng.choice(["Action Order", "Camera Motion", "Repetition Count"]),
                "video_path": f"v{number}.mp4",
                "video_type": "public",
                "qa": [qa],
            }
        )
        texts.append(guesses(rng, gold, given))
    return rows, texts


def lvbench() -> Case:
    rng = random.Random("lvbench")
    rows, texts = [], []
    kinds = ["entity recognition", "summarization", "reasoning", "event understanding"]
    for video in range(60):
        asked = []
        for number in range(5):
            given = options(rng, 4)
            gold = rng.choice("ABCD")
            lettered = "\n".join(f"({a}) {b}" for a, b in zip("ABCD", given, strict=True))
            asked.append(
                {
                    "uid": str(video * 5 + number),
                    "question": f"Question {number}?\n{lettered}",
                    "answer": gold,
                    "question_type": rng.sample(kinds, rng.choice([1, 1, 2])),
                    "time_reference": "00:10-00:20",
                }
            )
            texts.append(guesses(rng, gold, given))
        rows.append({"key": f"key{video}", "type": rng.choice(["sport", "live"]), "qa": asked})
    return rows, texts


def longvideobench() -> Case:
    rng = random.Random("longvideobench")
    rows, texts = [], []
    for number in range(300):
        given = options(rng, rng.choice([4, 5]))
        gold = rng.randrange(len(given))
        rows.append(
            {
                "id": f"vid{number // 2}_{number % 2}",
                "video_id": f"vid{number // 2}",
                "video_path": f"vid{number // 2}.mp4",
                "subtitle_path": f"vid{number // 2}_en.json",
                "question": f"Question {number}?",
                "candidates": given,
                "correct_choice": gold,
                "duration": 12.5,
                "duration_group": rng.choice([15, 60, 600, 3600]),
                "question_category": rng.choice(["S2E", "T2A", "SSS"]),
                "topic_category": "KA-Knowledge",
                "level": "L1-Perception",
                "starting_timestamp_for_subtitles": 0,
            }
        )
        texts.append(guesses(rng, LETTERS[gold], given))
    return rows, texts


def mlvu() -> Case:
    rng = random.Random("mlvu")
    rows, texts = [], []
    for number in range(300):
        is_test = rng.random() < 0.4
        given = options(rng, 6 if is_test else 4)
        gold = rng.randrange(len(given))
        row = {
            "file": "test" if is_test else "1_plotQA",
            "video": f"{number // 2}.mp4",
            "duration": 246,
            "question": f"Question {number}?",
            "candidates": given,
            "answer": given[gold],
            "question_type": rng.choice(["plotQA", "ego", "count", "order"]),
        }
        rows.append(row | ({"question_id": f"Q_{number}"} if is_test else {}))
        texts.append(guesses(rng, LETTERS[gold], given))
    return rows, texts


def video_holmes() -> Case:
    rng = random.Random("video_holmes")
    rows, texts = [], []
    for number in range(300):
        given = options(rng, 6)
        gold = rng.choice("ABCDEF")
        rows.append(
            {
                "video ID": f"vid{number // 5}",
                "Question ID": number + 1,
                "Question Type": rng.choice(["SR", "IMC", "TCI", "TA", "MHR", "PAR", "CTI"]),
                "Question": f"Question {number}?",
                "Options": dict(zip("ABCDEF", given, strict=True)),
                "Answer": gold,
                "Explanation": "Because it is so.",
            }
        )
        texts.append(guesses(rng, gold, given))
    return rows, texts


def minerva() -> Case:
    rng = random.Random("minerva")
    rows, texts = [], []
    skills = ["Counting", "Temporal Reasoning", "Reading"]
    for number in range(300):
        given = options(rng, 5)
        gold = rng.randrange(5)
        choices = {f"answer_choice_{place}": text for place, text in enumerate(given)}
        rows.append(
            {
                "key": f"q{number}",
                "video_id": f"vid{number // 6}",
                "question": f"Question {number}?",
                "answer": given[gold],
                **choices,
                "answer_id": gold,
                "reasoning": "At 0:10 it is seen.",
                "question type": ", ".join(rng.sample(skills, rng.choice([1, 2]))),
                "split": rng.choice(["Sports", "Short Films"]),
                "category": rng.choice(["Basketball", "Drama"]),
            }
        )
        texts.append(guesses(rng, LETTERS[gold], given))
    return rows, texts


def longvideo_reason() -> Case:
    rng = random.Random("longvideo_reason")
    rows, texts = [], []
    for number in range(300):
        given = options(rng, rng.choice([4, 5, 8]))
        gold = LETTERS[rng.randrange(len(given))]
        lettered = "\n".join(f"{a}. {b}" for a, b in zip(LETTERS, given, strict=False))
        rows.append(
            {
                "videos": f"vid{number // 2}.mp4",
                "problem": f"Question {number}?\n{lettered}",
                "answer": gold,
            }
        )
        texts.append(guesses(rng, gold, given))
    return rows, texts


CASES: dict[str, Callable[[], Case]] = {
    "video_mme": video_mme,
    "video_mme_v2": video_mme_v2,
    "mvbench": mvbench,
    "motionbench": motionbench,
    "lvbench": lvbench,
    "longvideobench": longvideobench,
    "mlvu": mlvu,
    "video_holmes": video_holmes,
    "minerva": minerva,
    "longvideo_reason": longvideo_reason,
}
