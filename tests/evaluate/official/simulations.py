"""VideoReasonBench's six demonstrations, stated again: what operations make of a state."""

import copy
import re
from typing import Any

State = Any


def slide(board: list[list[int]], moves: list[str]) -> list[list[int]]:
    """hrd: the gap swaps with the square that moves into it; what is off the board is left out."""
    board = copy.deepcopy(board)
    side = len(board)
    for move in moves:
        (row, column), *_ = [(i, j) for i in range(side) for j in range(side) if not board[i][j]]
        other = {
            "up": (row - 1, column),
            "down": (row + 1, column),
            "left": (row, column + 1),
            "right": (row, column - 1),
        }[move]
        if min(other) < 0 or max(other) >= side:
            continue
        board[row][column] = board[other[0]][other[1]]
        board[other[0]][other[1]] = 0
    return board


def flip(board: list[list[int]], at: list[int], moves: list[str]) -> list[list[int]]:
    """grid: each step turns over the piece reached and its four neighbours."""
    board = copy.deepcopy(board)
    side, (x, y) = len(board), at
    for move in moves:
        new = [x + (move == "right") - (move == "left"), y + (move == "down") - (move == "up")]
        if min(new) < 0 or max(new) >= side:
            continue
        x, y = new
        for row in range(side):
            for column in range(side):
                if abs(row - y) + abs(column - x) <= 1:
                    board[row][column] ^= 1
    return board


def swap(board: list[list[int]], pairs: list[str]) -> list[list[int]]:
    """cup: contents of two cups change places; a cup that is not there changes nothing."""
    board = copy.deepcopy(board)
    for pair in pairs:
        one, other = [(ord(name[0]) - ord("a"), int(name[1]) - 1) for name in pair.split(", ")]
        if max(*one, *other) >= len(board):
            continue
        kept = board[one[0]][one[1]]
        board[one[0]][one[1]] = board[other[0]][other[1]]
        board[other[0]][other[1]] = kept
    return board


def deal(piles: dict[str, list[str]], actions: list[str]) -> dict[str, list[str]] | None:
    """card: from the bottom; None where an action cannot be."""
    piles = copy.deepcopy(piles)
    for action in actions:
        kind, *card, _, pile = action.split()
        if pile not in piles:
            return None
        if kind == "add":
            piles[pile].append(" ".join(card))
        elif piles[pile][:1] == [" ".join(card)]:
            del piles[pile][0]
        else:
            return None
    return piles


def stake(cups: dict[str, list[int]], actions: list[str]) -> dict[str, list[int]] | None:
    """chip: sorted contents; None where an action cannot be."""
    cups = copy.deepcopy(cups)
    for action in actions:
        words = action.split()
        kind, chip, cup = words[0], int(words[1]), words[-1]
        if chip not in (5, 10, 20, 50, 100) or cup not in cups:
            return None
        if kind == "add":
            cups[cup].append(chip)
        elif chip in cups[cup]:
            cups[cup].remove(chip)
        else:
            return None
    return {cup: sorted(chips) for cup, chips in cups.items()}


def shell(folders: dict[str, list[str]], commands: list[str]) -> dict[str, set[str]] | None:
    """file_sys: two commands at most, of two kinds, without a file in common."""
    found = {name: set(files) for name, files in folders.items()}
    named: dict[str, set[str]] = {}
    if len(commands) > 2:
        return None
    for command in commands:
        match = re.fullmatch(r"(rm -rf|touch) (path\d)/\{(.*)\}", command)
        if match is None or match[2] not in found:
            return None
        files = set(match[3].split(","))
        named[match[1]] = files
        found[match[2]] = (
            found[match[2]] - files if match[1] == "rm -rf" else found[match[2]] | files
        )
    return None if named.get("rm -rf", set()) & named.get("touch", set()) else found
