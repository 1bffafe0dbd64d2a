"""The official formulas, stated again from the protocols: what the product's numbers must equal.

Nothing here comes from easyvideor1; a test reads the imports. Each function takes the rows of a
release and a text for each question (None: missing) and gives the official numbers, 0 to 1, and
`field=value` for the official categories. Text up to the last `</think>` does not count.
"""

import ast
import re
from collections.abc import Callable
from typing import Any

from tests.evaluate.official.counting import average, by, one, share

Row = dict[str, Any]
Texts = list[str | None]
LETTERS = "ABCDEFGHIJKLMN"


def seen(text: str | None) -> str:
    return "" if text is None else text.split("</think>")[-1]


def without(text: str, *phrases: str) -> str:
    for phrase in phrases:
        text = "".join(text.split(phrase))
    return text


def earliest(text: str, letters: str) -> str:
    return next((character for character in text if character in letters), "")


MME_PHRASES = (
    "The best answer is",
    "The correct answer is",
    "The answer is",
    "The answer",
    # Two entries of the list in one, since a comma is missing between them, twice.
    "The best option is" + "The correct option is",
    "Best answer:" + "Best option:",
    "Answer:",
    "Option:",
    "The correct answer",
    "The correct option",
)


def video_mme(rows: list[Row], texts: Texts) -> dict[str, float]:
    read = [earliest(without(seen(text).strip(), *MME_PHRASES), "ABCD") for text in texts]
    right = [letter == row["answer"] for letter, row in zip(read, rows, strict=True)]
    readable = [hit for hit, letter in zip(right, read, strict=True) if letter]
    fields = {name: one(name) for name in ("duration", "domain", "sub_category", "task_type")}
    overall = {"accuracy": share(right), "accuracy of answered": share(readable)}
    answered = [row for row, letter in zip(rows, read, strict=True) if letter]
    among = by(answered, readable, fields)
    named = {f"{name} accuracy of answered": number for name, number in among.items()}
    return overall | by(rows, right, fields) | named


V2_PHRASES = (
    "Final Answer:",
    "The best answer is",
    "The correct answer is",
    "The answer is",
    "The answer",
    "The best option is",
    "The correct option is",
    "Best answer:",
    "Best option:",
    "Answer:",
    "Option:",
)


def video_mme_v2(rows: list[Row], texts: Texts) -> dict[str, float]:
    marks = []
    for row, text in zip(rows, texts, strict=True):
        letter = earliest(without(seen(text).strip(), *V2_PHRASES), "ABCDEFGH")
        marks.append((letter == row["answer"]) if letter else None)
    parts: dict[str, list[float]] = {}
    for start in range(0, len(rows), 4):
        last = rows[start + 3]
        group = marks[start : start + 4]
        fair = v2_group([int(mark is True) for mark in group], last)
        raw = v2_group([-1 if mark is None else int(mark) for mark in group], last)
        kind = {"relevance": "Consistency", "logic": "Coherence"}[last["group_type"]]
        names = ["Non-Lin", kind, f"second_head {last['second_head']}"]
        names += [f"third_head {last['third_head']}"]
        names += [] if last["level"] == "None" else [f"Level {last['level']}"]
        for name in names:
            parts.setdefault(name, []).append(fair)
        parts.setdefault("Non-Lin (as scripted)", []).append(raw)
    right = [mark is True for mark in marks]
    fields = {name: one(name) for name in ("level", "group_type", "second_head", "third_head")}
    scores = {name: average(values) / 100 for name, values in parts.items()}
    return scores | {"accuracy": share(right)} | by(rows, right, fields)


def v2_group(marks: list[int], last: Row) -> float:
    """Points of a group out of 100."""
    if last["group_type"] == "relevance":
        return {0: 0.0, 1: 6.25, 2: 25.0, 3: 56.25, 4: 100.0}.get(sum(marks), 0.0)
    chain = 0
    while chain < 4 and marks[chain]:
        chain += 1
    structure = ast.literal_eval(last["group_structure"])
    if structure == [1, 2, 3, 4]:
        return [0.0, 6.25, 25.0, 56.25, 100.0][chain]
    if structure == [1, [2, 3], 4]:
        # The third may be right where the second is not.
        chain = 2 if chain == 1 and marks[2] else chain
        return [0.0, 100 / 12, 400 / 12, 700 / 12, 100.0][chain]
    chain = 1 if chain == 0 and marks[1] else chain
    return [0.0, 10.0, 20.0, 50.0, 100.0][chain]


def mvbench(rows: list[Row], texts: Texts) -> dict[str, float]:
    right = []
    for row, text in zip(rows, texts, strict=True):
        first_line = seen(text).strip().split("\n")[0]
        said = ("(" + first_line).lower().split(" ")[0]
        wanted = f"({LETTERS[row['candidates'].index(row['answer'])].lower()})"
        right.append(
            bool(first_line) and (wanted.find(said.replace(".", "")) >= 0 or said.find(wanted) >= 0)
        )
    return {"accuracy": share(right)} | by(rows, right, {"category": one("file")})


def cut_letter(text: str) -> str:
    """LVBench's and MotionBench's way to a letter."""
    before = text.strip().split(")")[0].strip()
    inside = before.split("(")[1].strip() if "(" in before else before
    word = inside.split(" ")[0]
    return word[0] if word else ""


def motionbench(rows: list[Row], texts: Texts) -> dict[str, float]:
    asked = [(row, question) for row in rows for question in row["qa"]]
    right = [
        cut_letter(seen(text)) == question["answer"]
        for (_, question), text in zip(asked, texts, strict=True)
    ]
    kinds = [row for row, _ in asked]
    return {"accuracy": share(right)} | by(kinds, right, {"category": one("question_type")})


def lvbench(rows: list[Row], texts: Texts) -> dict[str, float]:
    asked = [question | {"type": row["type"]} for row in rows for question in row["qa"]]
    right = [
        cut_letter(seen(text)) == question["answer"]
        for question, text in zip(asked, texts, strict=True)
    ]
    fields = {"question_type": lambda question: question["question_type"], "type": one("type")}
    return {"accuracy": share(right)} | by(asked, right, fields)


LVB_PHRASES = (
    "The best answer is",
    "The correct answer is",
    "The answer is",
    "The answer",
    "The best option is",
    "The correct option is",
    "Best answer:",
    "Best option:",
)


def longvideobench(rows: list[Row], texts: Texts) -> dict[str, float]:
    read = [earliest(without(seen(text).strip(), *LVB_PHRASES), "ABCDE") for text in texts]
    right = [
        letter == "ABCDE"[row["correct_choice"]] for letter, row in zip(read, rows, strict=True)
    ]
    fields = {name: one(name) for name in ("duration_group", "question_category")}
    return {"accuracy": share(right)} | by(rows, right, fields)


def mlvu(rows: list[Row], texts: Texts) -> dict[str, float]:
    right = []
    for row, text in zip(rows, texts, strict=True):
        said = seen(text)
        at = said.find(")")
        letter = said.strip() if at < 0 else said[at - 1 : at] if at else ""
        right.append(letter == LETTERS[row["candidates"].index(row["answer"])])
    numbers = {}
    for part in ("dev", "test"):
        chosen = [
            (row, hit)
            for row, hit in zip(rows, right, strict=True)
            if (row["file"] == "test") == (part == "test")
        ]
        tasks = sorted({row["question_type"] for row, _ in chosen})
        numbers[f"{part} M-Avg"] = average(
            share(hit for row, hit in chosen if row["question_type"] == task) for task in tasks
        )
        numbers[f"{part} accuracy"] = share(hit for _, hit in chosen)
    return numbers | by(rows, right, {"category": one("question_type")})


def video_holmes(rows: list[Row], texts: Texts) -> dict[str, float]:
    right = []
    for row, text in zip(rows, texts, strict=True):
        said = seen(text)
        tagged = re.findall(r"<answer>\s*(.*?)\s*</answer>", said, re.DOTALL)
        choice = tagged[-1].strip() if tagged else said
        marked = [
            x for x in "ABCDEF" if f"{x} " in choice or f"{x}:" in choice or f"[{x}" in choice
        ]
        plain = [x for x in "ABCDEF" if x in choice]
        right.append((marked or plain or ["WRONG"])[0] == row["Answer"])
    return {"accuracy": share(right)} | by(rows, right, {"category": one("Question Type")})


def minerva(rows: list[Row], texts: Texts) -> dict[str, float]:
    phrases = (
        "The best answer is",
        "The correct answer is",
        "The answer is",
        "Answer:",
        "Option:",
        "Therefore, the final answer is:",
    )
    right = []
    for row, text in zip(rows, texts, strict=True):
        said = seen(text).strip()
        stated = re.findall(r"(?i)(?:answer|option)\s*(?:is|:)\s*([abcde])", said)
        rest = without(said, *phrases)
        letter = stated[-1].upper() if stated else earliest(rest[::-1], "ABCDE")
        right.append(letter == "ABCDE"[row["answer_id"]])
    fields: dict[str, Callable[[Any], list]] = {
        "question type": lambda row: row["question type"].split(", "),
        "split": one("split"),
        "category": one("category"),
    }
    return {"accuracy": share(right)} | by(rows, right, fields)


def longvideo_reason(rows: list[Row], texts: Texts) -> dict[str, float]:
    right = []
    for row, text in zip(rows, texts, strict=True):
        said = seen(text)
        tagged = re.search(r"<answer>(.*?)</answer>", said)
        right.append((tagged[1] if tagged else said).strip() == row["answer"])
    return {"accuracy": share(right)}


FORMULAS: dict[str, Callable[[list[Row], Texts], dict[str, float]]] = {
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
