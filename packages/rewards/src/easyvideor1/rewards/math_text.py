r"""Mathematical answers as LaTeX that math-verify reads, whether LaTeX, plain text or Unicode.

What its parser would misread is put into a form it knows: `2**10`, `sqrt(2)`, `pi`, `1e-3`, √2, x²,
≤, 1 234, `0.\overline{3}`, `50\%`, `1 1/2`, `[[1, 2], [3, 4]]`. Prose is no expression, nor is what
the parser would take seconds for.
"""

import re

from easyvideor1.rewards.number_words import in_digits

MAX_CHARS = 300
MAX_DEPTH = 6
"""Of brackets within each other: the parser's time grows with the power of it."""
MAX_WORDS = 5

_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_TEXT_COMMAND = re.compile(r"\\(?:begin|end|text\w*|math\w+|operatorname|mbox)\s?\{[^{}]*\}")
_PROSE = frozenset(
    {"the", "is", "are", "was", "answer", "so", "because", "therefore", "thus", "hence", "we",
     "you", "it", "get", "gives", "not", "have", "has", "find", "found", "which", "that", "this",
     "know", "think", "with", "from", "as", "there", "be", "can", "must", "should", "let", "then"}
)  # fmt: skip
_COSTLY = {"^": 16, "_": 16, "|": 16, ":": 4, "\\int": 2, "\\sum": 2, "\\prod": 2, "\\lim": 2}
"""How often each sign may occur: chains of them take the parser's or sympy's time exponentially."""
_LARGE_BINOMIAL = re.compile(r"\\[dt]?binom[^\d]{0,9}\d{5}|\d{5}\s*\\choose")


def is_expression(text: str) -> bool:
    """Whether `text` can be an expression: short, shallow, and no prose."""
    if not 0 < len(text) <= MAX_CHARS or is_costly(text):
        return False
    words = _WORD.findall(_TEXT_COMMAND.sub(" ", text))
    return len(words) <= MAX_WORDS and _PROSE.isdisjoint(word.casefold() for word in words)


def is_costly(text: str) -> bool:
    """Whether the parser or sympy may take seconds for `text`."""
    if _depth(text) > MAX_DEPTH or _LARGE_BINOMIAL.search(text):
        return True
    return any(text.count(sign) > limit for sign, limit in _COSTLY.items())


def _depth(text: str) -> int:
    """How many brackets stand within each other, one that is never closed included."""
    depth = deepest = 0
    for sign in text:
        if sign in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in ")]}":
            depth -= 1
    return deepest


_WRAPPERS = (
    ("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("```", "```"),
    ("`", "`"),
)  # fmt: skip
_BOXED = re.compile(r"\\(?:boxed|fbox)\s?\{")


def bare(text: str) -> str:
    r"""`text` without dollars, `\boxed`, emphasis and closing punctuation around the whole of it.

    Brackets stay, since they mean something.

    Example:
        >>> bare(r"$\boxed{(1, 2]}$.")
        '(1, 2]'
    """
    for _ in range(6):
        before = text
        text = text.strip().rstrip(".。,，;；:：").rstrip()
        for left, right in _WRAPPERS:
            inner = text[len(left) : -len(right)]
            if text.startswith(left) and text.endswith(right) and inner and left not in inner:
                text = inner
                break
        if (box := _BOXED.match(text)) and _closing_brace(text, box.end()) == len(text) - 1:
            text = text[box.end() : -1]
        if text == before:
            break
    return text


def _closing_brace(text: str, start: int) -> int:
    """Where the brace that opens before `start` is closed; -1 if nowhere."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return -1


# What an expression is called in LaTeX

_SIGNS = str.maketrans(
    {
        "−": "-", "–": "-", "﹣": "-", "×": r"\times ", "⋅": r"\cdot ", "·": r"\cdot ",
        "∙": r"\cdot ", "÷": "/", "⁄": "/", "∕": "/", "π": r"\pi ", "∞": r"\infty ",
        "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
        "±": r"\pm ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
        "ℕ": r"\mathbb{N}", "½": r"\frac{1}{2}", "°": r"^{\circ}", "⅓": r"\frac{1}{3}",
        "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅛": r"\frac{1}{8}",
        "％": "%", "，": ",",
        "（": "(", "）": ")", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "$": "", "€": "",
        "£": "", "\n": " ", "\t": " ",
    }
)  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUPERSCRIPT = re.compile("[⁰¹²³⁴-⁹⁺⁻ⁿ]+")
_FUNCTION_NAMES = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp"
_SPACING = re.compile(r"\\[,;:! ]|~|\\q?quad\b")
_SIMPLE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\\%|\s*\b(?:percent|per cent)\b"), "%"),
    (re.compile(r"(?<=\d)\{,\}(?=\d{3})"), ","),
    (re.compile(r"(?<![\d.])(\d+) (\d+)/(\d+)(?![\d/])"), r"\1\\frac{\2}{\3}"),
    (
        re.compile(r"(?<![A-Za-z\d.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?![\w.])"),
        r"\1\\times 10^{\2}",
    ),
    (re.compile(r">\s?="), r"\\ge "),
    (re.compile(r"(?<!<)<\s?="), r"\\le "),
    (re.compile(r"(?<=\s)!=(?!=)"), r"\\ne "),
    (re.compile(r"√\s?(\d+(?:\.\d+)?|[a-zA-Z])"), r"\\sqrt{\1}"),
    (re.compile(r"√\s?(?=\()"), "sqrt"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(rf"(?<![\\A-Za-z])({_FUNCTION_NAMES})(?=\s?[(\d{{\\]|\s[a-z]\b)"), r"\\\1 "),
    (re.compile(r"(?<![\\A-Za-z])(pi|theta|alpha|beta)(?![A-Za-z])"), r"\\\1 "),
    (re.compile(r"(?<![\\A-Za-z])(?:infinity|inf|oo)(?![A-Za-z])"), r"\\infty "),
    (re.compile(r"\^\s?(-?\d+(?:\.\d+)?|-[a-zA-Z])"), r"^{\1}"),
)
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d,]| \d)")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s?\{?(\d{1,9})\}?")
_TOWER = re.compile(r"\^(\{[^{}^]*\}|\w)\s?\^(?=\{|\w)")
_ROWS = re.compile(
    r"(?:\w*[mM]atrix\s?\(|np\.array\()?\s*\[\s*(\[[^\[\]]*\](?:\s*,\s*\[[^\[\]]*\])*)\s*\]\s*\)?"
)
_NUMBER_IN_DIGITS = re.compile(r"-?\d+(?:\.\d+)?(?:/\d+)?|\d+ \d+/\d+")


def to_latex(text: str) -> str:
    r"""An expression as LaTeX.

    Example:
        >>> to_latex("2**10 + sqrt(3)")
        '2^{10} + \\sqrt{3}'
    """
    if text.replace(" ", "").replace("-", "").isalpha():
        digits = in_digits(text)
        text = digits if _NUMBER_IN_DIGITS.fullmatch(digits) else text
    text = _SUPERSCRIPT.sub(_as_power, text.replace("\\$", "")).translate(_SIGNS)
    if rows := _ROWS.fullmatch(text.strip()):
        return _matrix(rows[1])
    text = _SPACING.sub(" ", text)
    text = _SPACED_THOUSANDS.sub(lambda match: match[0].replace(" ", ""), text)
    for pattern, replacement in _SIMPLE:
        text = pattern.sub(replacement, text)
    text = _REPEATING.sub(_as_fraction, text)
    for name, left, right in (("sqrt", r"\sqrt{", "}"), ("abs", "|", "|"), ("^", "^{", "}")):
        text = _with_argument(text, name, left, right)
    while match := _TOWER.search(text):  # a^b^c is a^(b^c)
        text = _nest_power(text, match)
    return text.strip()


def _as_power(match: re.Match[str]) -> str:
    return f"^{{{match[0].translate(_SUPERSCRIPTS)}}}"


def _matrix(rows: str) -> str:
    lines = [row.replace(",", "&") for row in re.findall(r"\[([^\[\]]*)\]", rows)]
    return r"\begin{bmatrix}" + r" \\ ".join(lines) + r"\end{bmatrix}"


def _as_fraction(match: re.Match[str]) -> str:
    """A repeating decimal as a fraction: 0.1666… is (16 - 1)/90."""
    whole, start, repeated = match.groups()
    all_digits, before = int(f"{whole or 0}{start}{repeated}"), int(f"{whole or 0}{start}")
    below = "9" * len(repeated) + "0" * len(start)
    return rf"\frac{{{all_digits - before}}}{{{below}}}"


def _with_argument(text: str, name: str, left: str, right: str) -> str:
    """`text` with `name(…)` as left…right, whatever brackets stand within."""
    pattern = re.compile(rf"(?<![\\A-Za-z]){name}\s?\(" if name.isalpha() else r"\^\s?\(")
    for _ in range(MAX_DEPTH):
        match = pattern.search(text)
        if match is None:
            break
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if depth:
            break
        text = f"{text[: match.start()]}{left}{text[match.end() : end - 1]}{right}{text[end:]}"
    return text


def _nest_power(text: str, match: re.Match[str]) -> str:
    """The first a^b^c of `text` with its second power within the first."""
    first = match[1].strip("{}")
    rest = text[match.end() :]
    if rest[0] == "{":
        end = _closing_brace(rest, 1) + 1
        end = end if end > 0 else len(rest)
    else:
        end = 1
    return f"{text[: match.start()]}^{{{first}^{rest[:end]}}}{rest[end:]}"
