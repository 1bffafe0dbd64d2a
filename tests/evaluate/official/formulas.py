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
from tests.evaluate.official.simulations import deal, flip, shell, slide, stake, swap

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


def vsi_bench(rows: list[Row], texts: Texts) -> dict[str, float]:
    scores = []
    for row, text in zip(rows, texts, strict=True):
        word = seen(text).split(" ")[0].rstrip(".").strip()
        if row["options"]:
            scores.append(float(word.lower() == row["ground_truth"].lower()))
            continue
        try:
            given, gold = float(word), float(row["ground_truth"])
        except ValueError:
            scores.append(0.0)
            continue
        # Thresholds and errors in doubles, as numpy.linspace(0.5, 0.95, 10) gives them.
        step = (0.95 - 0.5) / 9
        thresholds = [0.5 + step * place for place in range(9)] + [0.95]
        error = abs(given - gold) / gold
        scores.append(sum(error <= 1 - threshold for threshold in thresholds) / 10)
    kinds = [row["question_type"] for row in rows]
    tasks = {
        kind: average(score for score, one in zip(scores, kinds, strict=True) if one == kind)
        for kind in sorted(set(kinds))
    }
    found = {f"category={kind}": score for kind, score in tasks.items()}
    levels = [tasks.pop(f"object_rel_direction_{level}") for level in ("easy", "medium", "hard")]
    tasks["object_rel_direction"] = average(levels)
    assert len(tasks) == 8
    return found | tasks | {"overall": average(tasks.values()), "accuracy": average(scores)}


def ovo_bench(rows: list[Row], texts: Texts) -> dict[str, float]:
    groups = {"EPM": "backward", "ASI": "backward", "HLD": "backward"}
    groups |= {"REC": "forward", "SSR": "forward", "CRR": "forward"}
    given = iter(texts)
    asked: list[tuple[str, bool]] = []
    for row in rows:
        for test in row.get("test_info", [None]):
            said = seen(next(given))
            if test is None:
                right = LETTERS[row["gt"]] in said
            elif row["task"] == "REC":
                right = "".join(x for x in said if x.isdigit()) == str(test["count"])
            else:
                word = "Yes" if test["type"] else "No"
                right = said == word[0] or word in said
            asked.append((row["task"], bool(said) and right))
    tasks = {
        task: share(hit for one, hit in asked if one == task)
        for task in sorted({task for task, _ in asked})
    }
    means = {
        group: average(
            score for task, score in tasks.items() if groups.get(task, "realtime") == group
        )
        for group in ("backward", "realtime", "forward")
    }
    flat = [({"task": task, "group": groups.get(task, "realtime")}, hit) for task, hit in asked]
    found = by(
        [row for row, _ in flat],
        [hit for _, hit in flat],
        {"category": one("task"), "group": one("group")},
    )
    total = {"total": average(means.values()), "accuracy": share(hit for _, hit in asked)}
    return total | means | found


def odv_letter(text: str) -> str:
    lettered = re.match(r"(?i)([a-e])\.\s*.+$", text.strip())
    if lettered:
        return lettered[1].upper()
    line = text.replace("\n", " ").replace("\t", " ").strip()
    clean = line
    thousands = re.search(r"\d,\d", line)
    for sign in ';/[]"{}()=+\\_->@<`,?!':
        gone = thousands or sign + " " in line or " " + sign in line
        clean = clean.replace(sign, "" if gone else " ")
    clean = re.sub(r"\.(?!\d)", "", clean)
    alone = re.search(r"(?i)\b([a-e])\b", clean)
    return alone[1].upper() if alone else clean


def odv_bench(rows: list[Row], texts: Texts) -> dict[str, float]:
    right = [
        odv_letter(seen(text)) == LETTERS[row["candidates"].index(row["answer"])]
        for row, text in zip(rows, texts, strict=True)
    ]
    fields = {name: one(name) for name in ("task", "subtask", "subsubtask")}
    given = [(row, hit) for row, hit, text in zip(rows, right, texts, strict=True) if seen(text)]
    among = by([row for row, _ in given], [hit for _, hit in given], fields)
    named = {f"{name} accuracy of answered": number for name, number in among.items()}
    overall = {"accuracy": share(right), "accuracy of answered": share(hit for _, hit in given)}
    return overall | by(rows, right, fields) | named


def livesports3k(rows: list[Row], texts: Texts) -> dict[str, float]:
    right = [
        seen(text).strip().startswith(row["answer"]) for row, text in zip(rows, texts, strict=True)
    ]
    fields = {"category": one("q_type"), "OCR": one("OCR")}
    return {"accuracy": share(right)} | by(rows, right, fields)


def mmvu(rows: list[Row], texts: Texts) -> dict[str, float]:
    right = [bool(row["meant"]) and row["meant"] == row["answer"] for row in rows]
    fields = {
        "question_type": one("question_type"),
        "category": lambda row: [row["metadata"]["subject"]],
    }
    return {"accuracy": share(right)} | by(rows, right, fields)


def videomathqa(rows: list[Row], texts: Texts) -> dict[str, float]:
    phrases = (
        "The best answer is",
        "The correct answer is",
        "The answer is",
        "The answer",
        "The best option is" + "The correct option is",
        "Best answer:" + "Best option:",
    )
    read = [earliest(without(seen(text).strip(), *phrases), "ABCDE") for text in texts]
    right = [letter == row["answer"] for letter, row in zip(read, rows, strict=True)]
    asked = list(zip(rows, right, strict=True))

    def numbers(chosen: list[tuple[Row, bool]]) -> dict[str, float]:
        pairs: dict[str, list[bool]] = {}
        for row, hit in chosen:
            if row["file"] == "multi_binary":
                pairs.setdefault(row["question_id"], []).append(hit)
        return {
            "mcq": share(hit for row, hit in chosen if row["file"] == "mcq"),
            "mbin": share(len(hits) == 4 and all(hits) for hits in pairs.values()),
        }

    found = numbers(asked)
    for field in ("category", "length"):
        for value in sorted({row[field] for row in rows}):
            part = numbers([(row, hit) for row, hit in asked if row[field] == value])
            found |= {f"{field}={value} {name}": number for name, number in part.items()}
    return found


def mmmu_letter(text: str, given: list[str]) -> str | None:
    said = text
    for sign in [",", ".", "!", "?", ";", ":", "'"]:
        said = said.strip(sign)
    said = f" {said} "
    letters = LETTERS[: len(given)]
    found = [x for x in letters if f"{x}." in said]
    where = "{}." if found else "{}:"
    found += [x for x in letters if f"{x}:" in said]
    if not found:
        found, where = [x for x in letters if f"({x})" in said], "({})"
    if not found:
        found, where = [x for x in letters if f"{x} " in said], " {} "
    if found:
        places = [said.rfind(where.format(x)) for x in found]
        return found[places.index(max(places))]
    if len(said.split()) > 5:
        named = [x for x in letters if given[letters.index(x)].lower() in said.lower()]
        places = [said.lower().rfind(given[letters.index(x)].lower()) for x in named]
        return named[places.index(max(places))] if named else None
    return None


MMMU_WORDS = """\
could be/so/is/thus/therefore/final/answer/result/are/in total/total/identify/recognize/has/have
calculated as/counted as/measured as/observed as/concluded as/found to be/equals/determined to be
number of/value is/adds up to"""
MMMU_MARKS = [f"{mark} " for line in MMMU_WORDS.splitlines() for mark in line.split("/")]


def mmmu_values(text: str) -> list[Any]:
    text = text.strip()
    try:
        return [round(float(text.replace(",", "")), 2)]
    except ValueError:
        text = text.lower()
        return [" " + text, text + " "] if len(text) == 1 else [text]


def mmmu_free(text: str, gold: str) -> bool:
    said = text.strip().strip(".").lower()
    ends = []
    pieces = re.split(r"\.\s(?=[A-Z])|\n", said)
    for place, piece in enumerate(pieces):
        marks = MMMU_MARKS + (["="] if place == len(pieces) - 1 else [])
        shortest = None
        for mark in marks:
            if mark in piece:
                tail = piece.rsplit(mark, 1)[1].strip()
                if not shortest or len(tail) < len(shortest):
                    shortest = tail
        if shortest and shortest not in (":", ",", ".", "!", "?", ";", "'"):
            ends.append(shortest)
    ends = ends or [said]
    found = list(ends)
    for end in ends:
        found += re.findall(r"-?\b\d{1,3}(?:,\d{3})+\b", end)
        found += re.findall(r"-?\d+(?:\.\d+)?[eE][+-]?\d+", end)
        found += re.findall(r"-?(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])", end)
    golds = mmmu_values(gold)
    for value in (value for one_ in found for value in mmmu_values(one_)):
        if isinstance(value, str):
            if any(isinstance(gold_, str) and gold_ in value for gold_ in golds):
                return True
        elif value in golds:
            return True
    return False


def video_mmmu(rows: list[Row], texts: Texts) -> dict[str, float]:
    given = iter(texts)
    asked: list[tuple[Row, bool]] = []
    for row in rows:
        subject = "_".join(row["id"].split("_")[1:-1])
        for track in [row["file"], *(["Question only"] if row["file"] == "Adaptation" else [])]:
            said = seen(next(given))
            if row["options"]:
                right = mmmu_letter(said, row["options"]) == row["answer"]
            else:
                right = mmmu_free(said, row["answer"])
            asked.append(({"track": track, "subject": subject}, bool(said) and right))
    tracks = {
        track: share(hit for row, hit in asked if row["track"] == track)
        for track in ("Perception", "Comprehension", "Adaptation", "Question only")
    }
    before = tracks["Question only"]
    gain = (tracks["Adaptation"] - before) / (1 - before)
    overall = share(hit for row, hit in asked if row["track"] != "Question only")
    found = by(
        [row for row, _ in asked],
        [hit for _, hit in asked],
        {"category": one("track"), "subject": one("subject")},
    )
    return {"accuracy": overall, "Δknowledge": gain} | tracks | found


def tempcompass_hit(task: str, question: Row, said: str) -> bool:
    """By words alone; what they do not decide is wrong without a judge."""
    gold = question["answer"]
    if task == "yes_no":
        start = said.lower()
        word = "yes" if start.startswith("yes") else "no" if start.startswith("no") else ""
        return word == gold
    if task == "multi-choice":
        if said == gold:
            return True
        return re.match(r"[ABCD]($|[.)])", said) is not None and said[0] == gold[0]
    lines = question["question"].split("\n")[1:]
    names, sentences = zip(*(line.split(": ") for line in lines), strict=True)
    picked = None
    for line in lines:
        picked = line if said == line else picked
    for sentence in sentences:
        if said == sentence or (") " in said and said.split(") ")[1] == sentence):
            picked = sentence
    for name in [*names, *(name.split(" ")[1] for name in names)]:
        if name in (said, said.replace(".", "")):
            picked = name
    name, sentence = gold.split(": ")
    return picked is not None and picked in (gold, name, sentence, name.split()[1])


def tempcompass(rows: list[Row], texts: Texts) -> dict[str, float]:
    given = iter(texts)
    asked: list[tuple[Row, bool]] = []
    for row in rows:
        for video, aspects in row.items():
            if video == "file":
                continue
            for dim, questions in aspects.items():
                for question in questions:
                    said = seen(next(given)).strip()
                    hit = bool(said) and tempcompass_hit(row["file"], question, said)
                    kind = "order" if dim == "order" else "-"
                    asked.append(({"task": row["file"], "dim": dim, "type": kind}, hit))
    flat, right = [row for row, _ in asked], [hit for _, hit in asked]
    found = by(flat, right, {name: one(name) for name in ("task", "dim", "type")})
    for task in {row["task"] for row in flat}:
        part = [(row, hit) for row, hit in asked if row["task"] == task]
        found[task] = share(hit for _, hit in part)
        for dim in {row["dim"] for row, _ in part}:
            found[f"{task} {dim}"] = share(hit for row, hit in part if row["dim"] == dim)
    return found | {"accuracy": share(right)}


def charades_sta(rows: list[Row], texts: Texts) -> dict[str, float]:
    ious = []
    for row, text in zip(rows, texts, strict=True):
        found = re.search(r"\[([\d.]+), ([\d.]+)\]", seen(text))
        if not found:
            ious.append(0.0)
            continue
        (start, end), (first, last) = map(float, found.groups()), row["timestamp"]
        shared = max(0.0, min(end, last) - max(start, first))
        ious.append(shared / (max(end, last) - min(start, first)))
    shares = {f"R@1 IoU={bound}": share(iou >= bound for iou in ious) for bound in (0.3, 0.5, 0.7)}
    return shares | {"mIoU": average(ious)}


def box_overlap(a: list[float], b: list[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return width * height / (sum(areas) - width * height)


def stvg(rows: list[Row], texts: Texts) -> dict[str, float]:
    in_time, in_space, tubes = [], [], []
    for row, text in zip(rows, texts, strict=True):
        (about,) = row.values()
        gold = {}
        for second in range(21):
            # Frames are numbered from 1; five of them are a second.
            place = 5 * second + 1 - about["st_frame"]
            if 0 <= place < len(about["bbox"]):
                x, y, width, height = about["bbox"][place]
                gold[str(second)] = [x, y, x + width, y + height]
        found = re.search(r"<answer>(.*)</answer>", seen(text))
        given = ast.literal_eval(found[1]) if found else {"time": [1e6, 1e6 + 1], "boxes": {}}
        (start, end), first, last = given["time"], about["st_time"], about["ed_time"]
        shared = max(0.0, min(end, last) - max(start, first))
        in_time.append(shared / (end - start + last - first - shared))
        both = gold.keys() & given["boxes"].keys()
        total = sum(box_overlap(gold[second], given["boxes"][second]) for second in sorted(both))
        in_space.append(total / max(1, len(both)))
        tubes.append(total / max(1, len(gold.keys() | given["boxes"].keys())))
    return {
        "m_tIoU": average(in_time),
        "m_sIoU": average(in_space),
        "m_vIoU": average(tubes),
        "vIoU@0.3": share(iou > 0.3 for iou in tubes),
        "vIoU@0.5": share(iou > 0.5 for iou in tubes),
    }


def vcr_bench(rows: list[Row], texts: Texts) -> dict[str, float]:
    right = []
    for row in rows:
        gold, meant = row["answer"], row["meant"]
        if meant == "Z" or gold == "Kitchen":
            right.append(False)  # nothing is read, or only a judge can tell
        elif row["multiple-choice"]:
            right.append(meant == gold)
        else:
            a, b = ast.literal_eval(gold), ast.literal_eval(meant)
            if len(a) == 4:
                right.append(box_overlap(a, b) > 0.5)
            else:
                shared = max(0, min(a[1], b[1]) - max(a[0], b[0]))
                right.append(shared / (max(a[1], b[1]) - min(a[0], b[0])) > 0.7)

    def length(row: Row) -> list[str]:
        seconds = row["duration"]
        return ["<=60" if seconds <= 60 else "60-300" if seconds <= 300 else ">300"]

    fields = {"category": one("dimension"), "duration_band": length}
    return {"accuracy": share(right)} | by(rows, right, fields)


def reached(demo: str, question: Row, said: str) -> bool:
    """Whether operations lead to the state that the question names, as the script compares it."""
    states, wanted = question["states"], re.findall(r"`([^`]+)`", question["question"])
    at = 0 if question["visible_time"] == "end" else -1
    words = re.findall(r"left|right|up|down", said)
    if demo == "hrd":
        cells = dict(re.findall(r"\((\w,\d)\): (\d)", wanted[0]))
        board = slide(states[at], words)
        named = {
            f"{x},{j + 1}": str(board[2 - i][j]) for i, x in enumerate("abc") for j in range(3)
        }
        return bool(words) and named == cells
    if demo == "grid":
        cells = dict(re.findall(r"\((\w,\d)\): (\w+)", wanted[0]))
        board = flip(states[at], question["coords"][at], words)
        colours = ("white", "black")
        named = {f"{x},{j}": colours[board[i][j]] for i, x in enumerate("abc") for j in range(3)}
        return bool(words) and named == cells
    if demo == "cup":
        pairs = re.findall(r"\((\w\d, \w\d)\)", said)
        board = swap(states[at], pairs)
        coins = [f"{x}{j + 1}" for i, x in enumerate("abc") for j in range(3) if board[i][j]]
        return bool(pairs) and coins == wanted[0].split(", ")
    if demo == "file_sys":
        commands = said.strip("`").split(" & ")
        folders = {name: list(held.values())[at] for name, held in states.items()}
        found = shell(folders, commands)
        return found is not None and found[wanted[0]] == set(wanted[1].split(", "))
    begun = {name: held[at] for name, held in states.items()}
    if demo == "card":
        piles = deal(begun, said.split(", "))
        return piles is not None and piles[wanted[0]] == wanted[1].split(", ")
    cups = stake(begun, said.split(", "))
    return cups is not None and cups[wanted[0]] == sorted(map(int, wanted[1].split(", ")))


def videoreasonbench(rows: list[Row], texts: Texts) -> dict[str, float]:
    given = iter(texts)
    asked: list[tuple[Row, bool]] = []
    for row in rows:
        for name, question in row.items():
            if name == "file":
                continue
            text = seen(next(given))
            _, mark, said = text.partition("Final Answer")
            said = said.removeprefix(":").strip()
            simulated = question["dim"] == "prediction_operation"
            hit = bool(mark and said and simulated) and reached(row["file"], question, said)
            band = "<=9" if int(question["num_operation"]) <= 9 else "9-14"
            about = {name: question[name] for name in ("dim", "num_state")}
            asked.append((about | {"demo": row["file"], "band": band}, hit))
    fields = {
        "category": one("dim"),
        "demo": one("demo"),
        "num_operation_band": one("band"),
        "num_state": one("num_state"),
    }
    flat, right = [row for row, _ in asked], [hit for _, hit in asked]
    return {"accuracy": share(right)} | by(flat, right, fields)


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
