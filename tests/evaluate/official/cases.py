"""Generated questions in each release's layout, with answers of all kinds to hold scorers to.

Deterministic, and free of easyvideor1, so that an official script can be run on the same answers.
A text of None is an answer that is missing: its video could not be read, or it was never given.
"""

import json
import random
from collections.abc import Callable
from typing import Any

from tests.evaluate.official.simulations import deal, flip, shell, slide, stake, swap

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


def number_text(rng: random.Random, gold: float) -> str | None:
    """A number near the gold one, in the forms that answers have, or none."""
    value = gold * rng.choice([1, 1, 0.8, 1.2, 1.05, 0.5, 2, 1.1])
    forms: list[str | None] = [
        f"{value:g}",
        f"{value:.1f}",
        f"{value:g}.",
        f"{value:g} metres",
        f"about {value:g}",
        f"<think>{gold:g}</think>{value:g}",
        f"-{value:g}",
        "inf",
        "nan",
        "two",
        "",
        None,
    ]
    return rng.choice(forms)


def vsi_bench() -> Case:
    rng = random.Random("vsi_bench")
    rows, texts = [], []
    numeric = ["object_counting", "object_abs_distance", "object_size_estimation"]
    lettered = ["route_planning", "obj_appearance_order", "object_rel_distance"]
    lettered += [f"object_rel_direction_{level}" for level in ("easy", "medium", "hard")]
    for number in range(400):
        kind = rng.choice([*numeric, "room_size_estimation", *lettered])
        row = {
            "id": number,
            "dataset": rng.choice(["arkitscenes", "scannet"]),
            "scene_name": f"scene{number // 4}",
            "question_type": kind,
            "question": f"Question {number}?",
        }
        if kind in lettered:
            given = options(rng, rng.choice([2, 4]))
            gold = LETTERS[rng.randrange(len(given))]
            shown = [f"{a}. {b}" for a, b in zip(LETTERS, given, strict=False)]
            rows.append(row | {"options": shown, "ground_truth": gold})
            texts.append(guesses(rng, gold, given))
        else:
            value = rng.choice([1, 2, 3, 4, 5, 10, 20, 2.5, 7.3])
            rows.append(row | {"options": None, "ground_truth": f"{value:g}"})
            texts.append(number_text(rng, value))
    return rows, texts


def yes_or_no(rng: random.Random, gold: str) -> str | None:
    other = "No" if gold == "Yes" else "Yes"
    said = gold if rng.random() < 0.6 else other
    forms: list[str | None] = [
        said,
        said,
        said.lower(),
        f"{said}.",
        f"{said}, it is so",
        said[0],
        f"I do not KNOW, {said}",
        f"<think>{other}</think>{said}",
        "maybe",
        "Not sure",
        "",
        None,
    ]
    return rng.choice(forms)


def ovo_bench() -> Case:
    rng = random.Random("ovo_bench")
    rows, texts = [], []
    for number in range(240):
        task = rng.choice(["EPM", "ASI", "HLD", "OCR", "STU", "FPD", "REC", "SSR", "CRR"])
        row: Row = {"id": number, "task": task, "video": f"Ego4D/{number}.mp4"}
        if task in ("REC", "SSR", "CRR"):
            times = []
            for second in range(rng.choice([1, 2, 3])):
                test: Row = {"realtime": 10 * second}
                if task == "REC":
                    test["count"] = rng.choice([1, 2, 12])
                    count = test["count"] if rng.random() < 0.7 else 3
                    forms = [f"{count}", f"{count} times", f"0{count}", "1 or 2", "two", "", None]
                    texts.append(rng.choice(forms))
                else:
                    test["type"] = rng.choice([0, 1])
                    texts.append(yes_or_no(rng, "Yes" if test["type"] else "No"))
                times.append(test | ({"step": f"step {second}"} if task == "SSR" else {}))
            extra = {"REC": {"activity": "jumping"}, "CRR": {"question": "What is in it?"}}
            rows.append(row | extra.get(task, {}) | {"test_info": times})
        else:
            given = options(rng, rng.choice([3, 4, 5]))
            gold = rng.randrange(len(given))
            asked = {"question": f"Question {number}?", "options": given, "gt": gold}
            rows.append(row | asked | {"answer": given[gold], "realtime": 12})
            texts.append(guesses(rng, LETTERS[gold], given))
    return rows, texts


def odv_bench() -> Case:
    rng = random.Random("odv_bench")
    rows, texts = [], []
    for number in range(300):
        given = options(rng, rng.choice([2, 4, 5]))
        gold = rng.randrange(len(given))
        rows.append(
            {
                "file": "targeting_single_static_objects_v4",
                "video": f"{number}.mp4",
                "question": f"Question {number}?",
                "candidates": given,
                "answer": given[gold],
                "start": 0.0,
                "end": 8.5,
                "task": rng.choice(["static", "dynamic"]),
                "subtask": rng.choice(["sign", "light"]),
                "subsubtask": rng.choice(["near", "far"]),
            }
        )
        text = guesses(rng, LETTERS[gold], given)
        signs = rng.choice(["{}", "{}", "{} ({})", "{}/{}", "1,000 {}", "[{}]", '"{}"'])
        texts.append(text and signs.replace("{}", text))
    return rows, texts


def livesports3k() -> Case:
    rng = random.Random("livesports3k")
    rows, texts = [], []
    for number in range(300):
        given = options(rng, 4)
        gold = rng.choice("ABCD")
        rows.append(
            {
                "video_id": f"vid{number // 3}",
                "video": f"vid{number // 3}.mp4",
                "video_start": 10.5,
                "video_end": 20.25,
                "question_id": f"vid{number // 3}_q{number % 3}",
                "q_type": rng.choice(["Who", "When", "What"]),
                "OCR": rng.choice([0, 1]),
                "question": f"Question {number}?",
                "options": [f"{a}: {b}" for a, b in zip("ABCD", given, strict=True)],
                "answer": gold,
            }
        )
        texts.append(guesses(rng, gold, given))
    return rows, texts


def mmvu() -> Case:
    """`meant` is the letter that a text states: what a judge would read."""
    rng = random.Random("mmvu")
    rows, texts = [], []
    for number in range(300):
        row: Row = {
            "id": f"validation_{number}",
            "video": f"https://huggingface.co/x/resolve/main/videos/Art/{number}.mp4",
            "metadata": {"subject": rng.choice(["Art", "Law", "Chemistry"])},
            "question": f"Question {number}?",
        }
        if rng.random() < 0.3:
            empty = dict.fromkeys("ABCDE", "")
            free = {"question_type": "open-ended", "choices": empty, "answer": "Dolly zoom"}
            rows.append(row | free | {"meant": ""})
            texts.append(rng.choice(["Dolly zoom", "A pan", "", None]))
            continue
        given = options(rng, 5)
        gold = rng.choice("ABCDE")
        letter = gold if rng.random() < 0.6 else rng.choice("ABCDE")
        stated = [
            letter,
            f"({letter})",
            f"Step by step. Therefore, the final answer is: {letter}",
            f"\\boxed{{{letter}}}",
            given["ABCDE".index(letter)],
        ]
        text = rng.choice([*stated, *stated, "I cannot tell", "F", "A and B", "", None])
        meant = letter if text in stated else ""
        kind = {
            "question_type": "multiple-choice",
            "choices": dict(zip("ABCDE", given, strict=True)),
        }
        rows.append(row | kind | {"answer": gold, "meant": meant})
        texts.append(text)
    return rows, texts


def videomathqa() -> Case:
    rng = random.Random("videomathqa")
    rows, texts = [], []
    for number in range(120):
        given = options(rng, 5)
        gold = rng.choice("ABCDE")
        shared = {
            "question_id": f"vid{number // 2}-{number}",
            "videoID": f"vid{number // 2}",
            "question": f"Question {number}?",
            "category": rng.choice(["Chart", "Puzzle", "Counting"]),
            "length": rng.choice(["short", "medium", "long"]),
            "steps": '{"1": "Look."}',
        }
        lettered = [f"{a}. {b}" for a, b in zip("ABCDE", given, strict=True)]
        rows.append(shared | {"file": "mcq", "options": lettered, "answer": gold})
        texts.append(guesses(rng, gold, given))
        able = rng.random()
        for wrong in [text for text in given if text != given["ABCDE".index(gold)]]:
            pair = rng.sample([given["ABCDE".index(gold)], wrong], 2)
            right = "AB"[pair.index(given["ABCDE".index(gold)])]
            two = [f"{a}. {b}" for a, b in zip("AB", pair, strict=True)]
            rows.append(shared | {"file": "multi_binary", "options": two, "answer": right})
            texts.append(right if able < 0.5 else guesses(rng, right, pair))
    return rows, texts


def free_text(rng: random.Random, gold: str) -> str | None:
    forms: list[str | None] = [
        gold,
        f"The result is {gold}.",
        f"So we get x = {gold}",
        f"It is 3.\nTherefore the answer is {gold} metres.",
        f"{gold} or 17",
        "1,234.5",
        "There are 12 of them",
        "It equals 2e3",
        "no idea",
        "",
        None,
    ]
    return rng.choice(forms)


def video_mmmu() -> Case:
    rng = random.Random("video_mmmu")
    rows, texts = [], []
    for track in ("Perception", "Comprehension", "Adaptation"):
        for number in range(100):
            subject = rng.choice(["Biology", "Computer_Science", "Art"])
            row: Row = {
                "file": track,
                "id": f"dev_{subject}_{number}",
                "question": f"<image 1> Question {number}?",
                "link_selected": "https://www.youtube.com/watch?v=x",
            }
            is_free = track == "Adaptation" and rng.random() < 0.3
            given = [] if is_free else options(rng, rng.choice([4, 10, 14]))
            gold = rng.choice(["4", "0.75", "1,200", "mitosis", "x"])
            if not is_free:
                gold = LETTERS[rng.randrange(len(given))]
            kind = "open" if is_free else "multiple-choice"
            rows.append(row | {"options": given, "answer": gold, "question_type": kind})
            # An adaptation question is answered with and without its video.
            for _ in range(2 if track == "Adaptation" else 1):
                texts.append(free_text(rng, gold) if is_free else guesses(rng, gold, given))
    return rows, texts


def tempcompass() -> Case:
    """One row a task: its file. Captions are left to a judge."""
    rng = random.Random("tempcompass")
    rows, texts = [], []
    for task in ("multi-choice", "yes_no", "caption_matching"):
        videos: Row = {"file": task}
        for video in range(20):
            aspects: dict[str, list[Row]] = {}
            for dim in rng.sample(["action", "direction", "speed", "order"], 2):
                for _ in range(rng.choice([2, 3])):
                    question, text = tempcompass_question(rng, task)
                    aspects.setdefault(dim, []).append(question)
                    texts.append(text)
            videos[f"{video}_reverse"] = aspects
        rows.append(videos)
    return rows, texts


def tempcompass_question(rng: random.Random, task: str) -> tuple[Row, str | None]:
    if task == "yes_no":
        gold = rng.choice(["yes", "no"])
        return {"question": "Is it so?", "answer": gold}, yes_or_no(rng, gold.capitalize())
    if task == "multi-choice":
        given = options(rng, rng.choice([2, 3, 4]))
        gold = rng.randrange(len(given))
        lines = [f"{a}. {b}" for a, b in zip(LETTERS, given, strict=False)]
        text = guesses(rng, LETTERS[gold], given)
        question = {"question": "\n".join(["What is it?", *lines]), "answer": lines[gold]}
        return question, rng.choice([text, text, text, lines[gold]])
    given = options(rng, 2)
    head = rng.choice(["Option 1|Option 2", "Sentence A|Sentence B", "Caption A|Caption B"])
    lines = [f"{a}: {b}." for a, b in zip(head.split("|"), given, strict=True)]
    gold, said = rng.choice(lines), rng.choice(lines)
    name, sentence = said.split(": ")
    forms: list[str | None] = [
        said,
        name,
        f"{name}.",
        name.split()[1],
        f"{name.split()[1]}.",
        sentence,
        f"({name.split()[1]}) {sentence}",
        f"It is {name}",
        sentence.upper(),
        "",
        None,
    ]
    return {"question": "\n".join(["Which fits?", *lines]), "answer": gold}, rng.choice(forms)


def charades_sta() -> Case:
    rng = random.Random("charades_sta")
    rows, texts = [], []
    for number in range(300):
        start = round(rng.uniform(0, 20), 1)
        end = round(start + rng.uniform(1, 10), 1)
        times = [start, end]
        rows.append(
            {"video": f"V{number // 3}.mp4", "caption": f"event {number}", "timestamp": times}
        )
        forms: list[str | None] = [
            f'<answer>{{"time": [{start + shift:.1f}, {end + shift:.1f}]}}</answer>'
            for shift in (0, 0.5, 1, 2, 4, 30)
        ]
        forms += [
            f'{{"time": [{start:.1f}, {start + 0.5 * (end - start):.2f}]}}',
            "never",
            "",
            None,
        ]
        texts.append(rng.choice(forms))
    return rows, texts


def stvg() -> Case:
    """Rows of HC-STVG: five frames a second."""
    rng = random.Random("stvg")
    rows, texts = [], []
    for number in range(220):
        first, count = rng.randint(1, 40), rng.randint(20, 60)
        x, y, width, height = (rng.randint(10, 200) for _ in range(4))
        boxes = [[x + step, y, width, height] for step in range(count)]
        start, end = (first - 1) / 5, (first + count - 2) / 5
        about = {
            "bbox": boxes,
            "st_time": start,
            "ed_time": end,
            "img_num": 100,
            "caption": f"event {number}",
            "width": 640,
            "height": 360,
            "st_frame": first,
        }
        rows.append({f"{number}.mp4": about})
        late, aside, wide = (
            rng.choice([0, 0, 1, 2]),
            rng.choice([0, 5, 40, 400]),
            rng.choice([1, 2]),
        )
        seconds = range(int(start) + late, int(end) + 1 + late)
        track = {
            str(second): [x + aside, y, x + aside + width * wide, y + height] for second in seconds
        }
        said = json.dumps({"time": [start + late, end + late + 0.5], "boxes": track})
        texts.append(rng.choice([f"<answer>{said}</answer>"] * 6 + ["nowhere", "", None]))
    return rows, texts


def vcr_bench() -> Case:
    """`meant` is what a model would read out of a text: a letter, a span, a box, or `Z`."""
    rng = random.Random("vcr_bench")
    rows, texts = [], []
    for number in range(320):
        kind = rng.choice(["letter", "letter", "span", "box", "free"])
        given = options(rng, 4) if kind == "letter" else [""] * 4
        row: Row = {
            "id": number,
            "video_path": f"video/{number // 2}.mp4",
            "duration": rng.choice([12, 60, 61, 300, 301, 1000]),
            "dimension": rng.choice(["Video Plot Analysis", "Temporal Spatial Reasoning"]),
            "question": f"Question {number}?",
            "multiple-choice": kind == "letter",
            "choices": dict(zip("ABCD", given, strict=True)),
            "reasoning": ["1. 0:07-0:55, it is seen.", "2. So it is."],
        }
        if kind == "letter":
            gold, said = rng.choice("ABCD"), rng.choice("ABCD")
            gold = said if rng.random() < 0.5 else gold
            meant, text = said, rng.choice([said, f"({said})", f"The answer is {said}."])
        elif kind == "span":
            start, end = rng.randint(0, 50), rng.randint(60, 90)
            gold, shift = f"[{start}, {end}]", rng.choice([0, 1, 2, 5, 10, 100])
            meant = text = f"[{start + shift}, {end + shift}]"
            text = rng.choice([text, f"<answer>{text}</answer>"])
        elif kind == "box":
            x, y = rng.randint(0, 50), rng.randint(0, 50)
            gold, wide = f"[{x}, {y}, {x + 100}, {y + 80}]", rng.choice([100, 120, 200, 201, 400])
            meant = text = f"[{x}, {y}, {x + wide}, {y + 80}]"
            text = rng.choice([text, f"It is at {text}."])
        else:
            gold, meant, text = "Kitchen", "Kitchen", "In the kitchen"
        if rng.random() < 0.15:
            meant, text = "Z", rng.choice(["I cannot tell", "", None])
        rows.append(row | {"answer": gold, "meant": meant})
        texts.append(text)
    return rows, texts


CARDS = [f"{rank} of {suit}" for rank in ("Ace", "7", "King") for suit in ("Hearts", "Clubs")]
CELL = [f"{letter}{number}" for letter in "abc" for number in "123"]


def videoreasonbench() -> Case:
    """A row a demonstration. Answers in words are left to a judge."""
    rng = random.Random("videoreasonbench")
    rows, texts = [], []
    makers = {
        "hrd": hrd,
        "grid": grid,
        "cup": cup,
        "card": card,
        "chip": chip,
        "file_sys": file_sys,
    }
    for demo, make in makers.items():
        questions: Row = {"file": demo}
        for number in range(45):
            dim = "prediction_operation" if number % 9 else "order_operation"
            question, answer = make(rng)
            about = {
                "video": f"videos/{demo}/{number}.mp4",
                "dim": dim,
                "num_state": rng.choice(["1", "2"]),
                "num_operation": str(rng.choice([5, 9, 10, 14])),
                "answer": None if number % 9 else "a1",
            }
            questions[f"q{number}"] = question | about
            forms: list[str | None] = [
                f"I think so.\n\nFinal Answer: {answer}",
                f"Final Answer:\n{answer}",
                f"<think>Final Answer: none</think>Final Answer: {answer}",
                answer,
                "Final Answer:",
                "",
                None,
            ]
            texts.append(rng.choice(forms[:3] * 4 + forms))
        rows.append(questions)
    return rows, texts


def hidden(rng: random.Random, states: Any, other: Any) -> Row:
    """The state to begin with as the first or the last of all, as the video shows the other end."""
    if rng.random() < 0.5:
        return {"visible_time": "end", "states": [states, other]}
    return {"visible_time": "start", "states": [other, states]}


def moves(rng: random.Random) -> list[str]:
    return [rng.choice(["left", "right", "up", "down"]) for _ in range(rng.randint(1, 4))]


def hrd(rng: random.Random) -> tuple[Row, str]:
    numbers = rng.sample(range(9), 9)
    board = [numbers[0:3], numbers[3:6], numbers[6:9]]
    said, done = moves(rng), moves(rng)
    target = slide(board, said if rng.random() < 0.6 else done)
    cells = [
        f"({letter},{column + 1}): {target[row][column]}"
        for row, letter in ((2, "a"), (1, "b"), (0, "c"))
        for column in range(3)
    ]
    question = (
        f"A puzzle on a 3x3 board. Reach the desired number arrangement: `{', '.join(cells)}`?"
    )
    return hidden(rng, board, slide(board, done)) | {"question": question}, ", ".join(said)


def grid(rng: random.Random) -> tuple[Row, str]:
    board = [[rng.randint(0, 1) for _ in range(3)] for _ in range(3)]
    at, said = [rng.randint(0, 2), rng.randint(0, 2)], moves(rng)
    target = flip(board, at, said if rng.random() < 0.6 else moves(rng))
    cells = [
        f"({letter},{column}): {'black' if target[row][column] else 'white'}"
        for row, letter in enumerate("abc")
        for column in range(3)
    ]
    opening = "the desired arrangement of black and white pieces:"
    question = f"It presents a 3x3 grid. Achieve {opening} `{', '.join(cells)}`?"
    coords = {"coords": [at, at]}
    return hidden(rng, board, board) | coords | {"question": question}, " ".join(said)


def cup(rng: random.Random) -> tuple[Row, str]:
    board = [[rng.randint(0, 1) for _ in range(3)] for _ in range(3)]
    board[0][0] = 1
    said = [", ".join(rng.sample([*CELL, "e5"], 2)) for _ in range(rng.randint(1, 3))]
    target = swap(board, said if rng.random() < 0.6 else said[:1])
    coins = [cell for cell in CELL if target["abc".index(cell[0])][int(cell[1]) - 1]]
    question = "A puzzle on a 3x3 board. Which swaps achieve the desired distribution of coins: "
    about = {"question": f"{question}`{', '.join(coins)}`?"}
    return hidden(rng, board, board) | about, ", ".join(f"({pair})" for pair in said)


def by_name(rng: random.Random, states: dict[str, Any]) -> Row:
    ends = [hidden(rng, state, state) for state in states.values()]
    found = {name: end["states"] for name, end in zip(states, ends, strict=True)}
    return {"visible_time": ends[0]["visible_time"], "states": found}


def card(rng: random.Random) -> tuple[Row, str]:
    pile = rng.sample(CARDS, 3)
    said = [f"remove {pile[0]} from pile0", f"add {rng.choice(CARDS)} to pile0"]
    said += rng.choice(
        [[], [f"remove {rng.choice(CARDS)} from pile0"], ["add 7 of Clubs to pile1"]]
    )
    target = (deal({"pile0": pile}, said) or {"pile0": pile[::-1]})["pile0"]
    listed = rng.choice([target, target[::-1]])
    question = (
        "What to do to ensure that `pile0` contains exactly the following cards from top to "
        "bottom: "
        f"`{', '.join(listed)}`?"
    )
    return by_name(rng, {"pile0": pile}) | {"question": question}, ", ".join(said)


def chip(rng: random.Random) -> tuple[Row, str]:
    held = [rng.choice([5, 10, 20]) for _ in range(3)]
    said = [f"add {rng.choice([5, 50, 7])} to cup0", f"remove {rng.choice([*held, 100])} from cup0"]
    target = (stake({"cup0": held}, said) or {"cup0": [5]})["cup0"]
    wanted = ", ".join(map(str, target if rng.random() < 0.8 else [100]))
    question = (
        f"What to do to ensure that `cup0` contains exactly the following chips: `{wanted}` "
        "(order does not matter)?"
    )
    return by_name(rng, {"cup0": held}) | {"question": question}, ", ".join(said)


def file_sys(rng: random.Random) -> tuple[Row, str]:
    names = rng.sample([f"{letter}.txt" for letter in "abcdefgh"], 6)
    said = [f"touch path0/{{{','.join(names[3:5])}}}", f"rm -rf path0/{{{names[0]}}}"]
    said = rng.choice([said, said[:1], said[::-1], [*said, said[0]], [f"rm {names[0]}"]])
    said = rng.choice([said, said, [f"touch path0/{{{names[0]}}}", f"rm -rf path0/{{{names[0]}}}"]])
    target = (shell({"path0": names[:3]}, said) or {"path0": {names[5]}})["path0"]
    wanted = ", ".join(sorted(target if rng.random() < 0.8 else names))
    question = (
        f"What to run to ensure that `path0` contains exactly the following files: `{wanted}`?"
    )
    states = {"init": names[:3], "touch": names[:3]}
    ends = {"visible_time": rng.choice(["start", "end"]), "states": {"path0": states}}
    return ends | {"question": question}, f"`{' & '.join(said)}`"


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
    "vsi_bench": vsi_bench,
    "ovo_bench": ovo_bench,
    "odv_bench": odv_bench,
    "livesports3k": livesports3k,
    "mmvu": mmvu,
    "videomathqa": videomathqa,
    "video_mmmu": video_mmmu,
    "tempcompass": tempcompass,
    "charades_sta": charades_sta,
    "stvg": stvg,
    "vcr_bench": vcr_bench,
    "videoreasonbench": videoreasonbench,
}
