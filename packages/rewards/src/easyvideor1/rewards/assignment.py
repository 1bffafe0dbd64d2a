"""The best one-to-one assignment of rows to columns: the Hungarian algorithm with potentials.

H. W. Kuhn, Naval Research Logistics Quarterly 2 (1955); in the form of R. Jonker and A. Volgenant,
Computing 38 (1987). Time grows with the square of the smaller side times the larger.
"""

import math
from collections.abc import Sequence


def best_sum(values: Sequence[Sequence[float]]) -> float:
    """The largest sum of values with at most one in each row and column.

    Example:
        >>> best_sum([[0.6, 0.5], [0.55, 0.0]])
        1.05
    """
    if len(values) > len(values[0]):
        values = list(zip(*values, strict=True))
    num_columns = len(values[0])
    row_of = [-1] * num_columns
    row_price, column_price = [0.0] * len(values), [0.0] * num_columns
    for row in range(len(values)):
        _assign(row, values, row_of, row_price, column_price)
    return math.fsum(values[row][column] for column, row in enumerate(row_of) if row >= 0)


def _assign(
    row: int,
    values: Sequence[Sequence[float]],
    row_of: list[int],
    row_price: list[float],
    column_price: list[float],
) -> None:
    """Give `row` a column, moving earlier rows along the cheapest alternating path."""
    num_columns = len(row_of)
    slack = [math.inf] * num_columns
    came_from = [-1] * num_columns
    visited = [False] * num_columns
    at_row, at_column = row, -1
    while True:
        nearest, distance = -1, math.inf
        for column in range(num_columns):
            if visited[column]:
                continue
            cost = -values[at_row][column] - row_price[at_row] - column_price[column]
            if cost < slack[column]:
                slack[column], came_from[column] = cost, at_column
            if slack[column] < distance:
                nearest, distance = column, slack[column]
        row_price[row] += distance
        for column in range(num_columns):
            if visited[column]:
                row_price[row_of[column]] += distance
                column_price[column] -= distance
            else:
                slack[column] -= distance
        visited[nearest] = True
        at_column = nearest
        if row_of[nearest] < 0:
            break
        at_row = row_of[nearest]
    while at_column >= 0:
        previous = came_from[at_column]
        row_of[at_column] = row_of[previous] if previous >= 0 else row
        at_column = previous
