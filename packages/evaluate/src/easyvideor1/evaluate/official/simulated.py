"""VideoReasonBench: operations that answer are carried out and must lead to the state asked for.

Six demonstrations: a sliding puzzle (hrd), flipped pieces (grid), swapped cups (cup), files, cards
and chips. Sources: llyx97/video_reason_bench, eval_api.py and utils/eval_utils.py; where the script
lets a model extract the operations, they are read where they stand.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from easyvideor1.evaluate.benchmark_config import ExtractorConfig
from easyvideor1.evaluate.official.reading import Reading, judged
from easyvideor1.schema.records import Sample

Board = list[list[int]]
Row = dict[str, Any]

_FINAL = re.compile(r"Final Answer\s*(.*?)\s*$", re.DOTALL)


def videoreasonbench(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """What stands after "Final Answer": operations are simulated, else a judge decides."""
    match = _FINAL.search(text)
    if match is None or not match[1]:
        return Reading()
    if sample.extra.get("dim") != "prediction_operation" or "states" not in sample.extra:
        return judged(match[1], sample)
    asked = match[1], sample.problem, sample.extra
    operations, is_reached = DEMOS[sample.extra["demo"]](*asked)
    if not operations:
        return Reading()
    _, is_right_to_script = SCRIPTED[sample.extra["demo"]](*asked)
    return Reading(
        extracted=operations,
        accuracy=float(is_right_to_script),
        parts={"strict": float(is_reached)},
    )


def _start(states: Sequence[Any], row: Row) -> Any:
    """The state that the operations begin with: the one that the video hides."""
    return states[0 if row["visible_time"] == "end" else -1]


def _wanted(question: str, opening: str) -> str:
    """What stands between backquotes after some words of the question.

    Raises:
        ValueError: nothing does.
    """
    match = re.search(rf"{opening}\s*`([^`]+)`", question)
    if match is None:
        raise ValueError(f"the question names no {opening!r}")
    return match[1]


def _cells(text: str) -> list[tuple[str, str, str]]:
    """`(a,1): 2` as row, column and content."""
    return re.findall(r"\(([a-e]),(\d)\): (\w+)", text)


# --- boards: a letter and a number name a square ------------------------------------------------

_MOVES = re.compile(r"\b(left|right|up|down)\b", re.IGNORECASE)


def _puzzle(answer: str, question: str, row: Row) -> tuple[list[str], bool]:
    """The square beside the gap that can make the move, makes it; others move nothing.

    Rows are listed from the bottom of the picture, so that row 0 is the one with the last letter.
    """
    moves = [move.lower() for move in _MOVES.findall(answer)]
    board = [list(line) for line in _start(row["states"], row)]
    size = len(board)
    shifts = {"up": (-1, 0), "down": (1, 0), "left": (0, 1), "right": (0, -1)}
    gap = next((i, j) for i in range(size) for j in range(size) if board[i][j] == 0)
    for move in moves:
        i, j = gap[0] + shifts[move][0], gap[1] + shifts[move][1]
        if 0 <= i < size and 0 <= j < size:
            board[gap[0]][gap[1]], board[i][j] = board[i][j], 0
            gap = i, j
    wanted = [[0] * size for _ in range(size)]
    for letter, number, content in _cells(_wanted(question, "the desired number arrangement:")):
        wanted[size - 1 - "abcde".index(letter)][int(number) - 1] = int(content)
    return moves, board == wanted


def _grid(answer: str, question: str, row: Row) -> tuple[list[str], bool]:
    """A step flips the piece it comes to and its neighbours; one off the board is left out."""
    moves = [move.lower() for move in _MOVES.findall(answer)]
    board = [list(line) for line in _start(row["states"], row)]
    x, y = _start(row["coords"], row)
    size = len(board)
    steps = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
    for move in moves:
        to_x, to_y = x + steps[move][0], y + steps[move][1]
        if not (0 <= to_x < size and 0 <= to_y < size):
            continue
        x, y = to_x, to_y
        for i, j in ((x, y), (x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)):
            if 0 <= i < size and 0 <= j < size:
                board[j][i] = 1 - board[j][i]
    wanted = [[0] * size for _ in range(size)]
    opening = "the desired arrangement of black and white pieces:"
    for letter, number, colour in _cells(_wanted(question, opening)):
        wanted["abcde".index(letter)][int(number)] = int(colour == "black")
    return moves, board == wanted


_SWAP = re.compile(r"\b([a-e])([1-5])\s*(?:,|and|<->|-)\s*([a-e])([1-5])\b", re.IGNORECASE)


def _cups(answer: str, question: str, row: Row) -> tuple[list[str], bool]:
    """Pairs of cups that change places; a pair beyond the board changes nothing."""
    swaps = [tuple(part.lower() for part in swap) for swap in _SWAP.findall(answer)]
    board = [list(line) for line in _start(row["states"], row)]
    height, width = len(board), len(board[0])
    for row_1, column_1, row_2, column_2 in swaps:
        i, j = "abcde".index(row_1), int(column_1) - 1
        k, m = "abcde".index(row_2), int(column_2) - 1
        if max(i, k) < height and max(j, m) < width:
            board[i][j], board[k][m] = board[k][m], board[i][j]
    wanted = [[0] * width for _ in range(height)]
    coins = _wanted(question, "achieve the desired distribution of coins:")
    for letter, number in re.findall(r"([a-e])([1-5])", coins):
        wanted["abcde".index(letter)][int(number) - 1] = 1
    return ["".join(swap) for swap in swaps], board == wanted


# --- piles: names and contents ------------------------------------------------------------------

_COMMAND = re.compile(r"\b(?:rm|touch|cp|mv|mkdir|echo)\b[^&;\n`]*")
_ALLOWED = re.compile(r"(rm -rf|touch) (path\d+)/\{([^}]+)\}\s*\Z")


def _files(answer: str, question: str, row: Row) -> tuple[list[str], bool]:
    """At most two commands, `rm -rf` and `touch`, that name no file in common."""
    commands = [command.strip() for command in _COMMAND.findall(answer)]
    matches = [_ALLOWED.match(command) for command in commands]
    if len(commands) > 2 or not all(matches):
        return commands, False
    folders = {
        name: set(_start(list(states.values()), row)) for name, states in row["states"].items()
    }
    named: dict[str, set[str]] = {"rm -rf": set(), "touch": set()}
    for match in matches:
        assert match is not None
        files = {file.strip() for file in match[3].split(",")}
        named[match[1]] = files
        if match[2] not in folders:
            return commands, False
        before = folders[match[2]]
        folders[match[2]] = before - files if match[1] == "rm -rf" else before | files
    if named["rm -rf"] & named["touch"]:
        return commands, False
    path = _wanted(question, "to ensure that")
    wanted = set(_wanted(question, "contains exactly the following files:").split(", "))
    return commands, folders.get(path) == wanted


_CARD = re.compile(
    r"\b(add|remove)\s+((?:Ace|[2-9]|10|Jack|Queen|King) of (?:Hearts|Clubs|Diamonds|Spades))"
    r"\s+(?:to|from)\s+(pile[01])\b",
    re.IGNORECASE,
)


def _cards(
    answer: str, question: str, row: Row, as_scripted: bool = False
) -> tuple[list[str], bool]:
    """Cards are added on top and taken from the bottom; another one cannot be taken.

    The states list a pile from its bottom, the question from its top. The script overlooks that.
    """
    moves = [
        (action.lower(), " ".join(_named(word) for word in card.split()), pile.lower())
        for action, card, pile in _CARD.findall(answer)
    ]
    piles = {name: list(_start(states, row)) for name, states in row["states"].items()}
    done = [" ".join(move) for move in moves]
    for action, card, pile in moves:
        if pile not in piles:
            return done, False
        if action == "add":
            piles[pile].append(card)
        elif not piles[pile] or piles[pile].pop(0) != card:
            return done, False
    path = _wanted(question, "to ensure that")
    opening = "contains exactly the following cards from top to bottom:"
    wanted = _wanted(question, opening).split(", ")
    return done, piles.get(path) == (wanted if as_scripted else wanted[::-1])


def _named(word: str) -> str:
    """A word of a card's name as the data write it."""
    return word.lower() if word.lower() == "of" else word.capitalize()


CHIPS = frozenset({5, 10, 20, 50, 100})
_CHIP = re.compile(r"\b(add|remove)\s+(\d+)\s+(?:(?:to|from)\s+)?(cup[01])\b", re.IGNORECASE)


def _chips(answer: str, question: str, row: Row) -> tuple[list[str], bool]:
    """Chips are put in and taken out; one that is not there cannot be taken."""
    moves = [(a.lower(), int(chip), cup.lower()) for a, chip, cup in _CHIP.findall(answer)]
    cups = {name: Counter(_start(states, row)) for name, states in row["states"].items()}
    done = [f"{action} {chip} {cup}" for action, chip, cup in moves]
    for action, chip, cup in moves:
        if chip not in CHIPS or cup not in cups:
            return done, False
        if action == "remove" and cups[cup][chip] == 0:
            return done, False
        cups[cup][chip] += 1 if action == "add" else -1
    path = _wanted(question, "to ensure that")
    wanted = _wanted(question, "contains exactly the following chips:")
    reached = +cups.get(path, Counter())
    return done, reached == Counter(int(chip) for chip in wanted.split(", "))


Simulation = Callable[[str, str, Row], tuple[list[str], bool]]

DEMOS: dict[str, Simulation] = {
    "hrd": _puzzle,
    "grid": _grid,
    "cup": _cups,
    "file_sys": _files,
    "card": _cards,
    "chip": _chips,
}
"""Operations read from an answer, and whether they lead to the state that the question asks for."""
SCRIPTED: dict[str, Simulation] = DEMOS | {"card": partial(_cards, as_scripted=True)}
"""The same as the official script has it."""
