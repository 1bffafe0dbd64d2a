r"""Units of measurement at the end of an expression: 5 cm, 60 km/h, 3\text{ m}^2, 12 square feet.

Lengths, masses, times and volumes are converted into each other; other units only have to agree.
"""

import re
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Unit:
    """What a quantity is measured in.

    Example:
        Unit(dimension="m/s", factor=Fraction(5, 18))    # km/h
    """

    dimension: str
    """Equal for units that can be converted into each other."""
    factor: Fraction
    """How many of the dimension's own unit it is."""


def split_unit(text: str) -> tuple[str, Unit | None]:
    r"""An expression without the unit at its end, and that unit.

    Example:
        >>> split_unit(r"90\text{ km/h}")
        ('90', Unit(dimension='m/s', factor=Fraction(5, 18)))
    """
    match = _AT_END.search(text[-MAX_UNIT_CHARS:])
    if match is None:
        return text, None
    start = max(0, len(text) - MAX_UNIT_CHARS) + match.start("unit")
    quantity = text[:start].rstrip()
    return (quantity, _unit_of(match)) if quantity else (text, None)


MAX_UNIT_CHARS = 80

_SCALES: dict[str, dict[str, str]] = {
    "m": {
        "m metre meter": "1", "mm millimetre millimeter": "1/1000",
        "cm centimetre centimeter": "1/100", "dm decimetre decimeter": "1/10",
        "km kilometre kilometer": "1000", "inch": "0.0254", "ft foot feet": "0.3048",
        "yd yard": "0.9144", "mi mile": "1609.344",
    },
    "kg": {
        "kg kilogram": "1", "g gram": "1/1000", "mg milligram": "1/1000000",
        "lb lbs pound": "0.45359237", "oz ounce": "0.028349523125",
    },
    "s": {
        "s sec second": "1", "ms millisecond": "1/1000", "min mins minute": "60",
        "h hr hrs hour": "3600", "day": "86400", "week": "604800",
    },
    "l": {"L litre liter": "1", "mL ml millilitre milliliter": "1/1000"},
}  # fmt: skip
_OTHERS = (
    "dollar usd USD", "euro EUR", "cent", "degree", "year", "month", "unit", "N newton", "J joule",
    "W watt", "kW kilowatt", "V volt", "A ampere amp", "Pa pascal", "Hz hertz", "K kelvin",
    "mol mole",
)  # fmt: skip


def _atoms() -> dict[str, Unit]:
    """Every name of a simple unit; long ones also with the s of the plural."""
    atoms: dict[str, Unit] = {}
    groups = [
        (names, Unit(dimension, Fraction(factor)))
        for dimension, scale in _SCALES.items()
        for names, factor in scale.items()
    ]
    groups += [(names, Unit(names.split()[0], Fraction(1))) for names in _OTHERS]
    for names, unit in groups:
        for name in names.split():
            atoms[name] = unit
            if len(name) > 3:
                atoms[f"{name}s"] = unit
    atoms["inches"] = atoms["inch"]
    return atoms


_ATOMS = _atoms()
_ATOM = "|".join(sorted(map(re.escape, _ATOMS), key=len, reverse=True))
_POWER = r"(?:\s?\^\s?\{{?(?P<{}>[23])\}}?)?"
_UNIT = (
    rf"(?P<word>square|sq\.?|cubic|cu\.?)?\s*(?P<above>{_ATOM}){_POWER.format('power')}"
    rf"(?:\s?(?:/|per\b)\s?(?P<below>{_ATOM}){_POWER.format('root')})?"
)
_SPACE = r"(?:\\[,;:! ]|~|\s)"
_COMMAND = r"\\(?:text|mathrm|textrm|rm|operatorname|mbox)\s?\{\s*"
_AT_END = re.compile(
    # In a LaTeX command, whose closing brace may stand before or after the power; after a space;
    # or right behind a digit, unless it is one letter, which may be a variable.
    rf"(?P<unit>{_SPACE}*(?:{_COMMAND}|(?<=[\d}})\]]){_SPACE}+|(?<=\d)(?=[A-Za-z]{{2}}))"
    rf"{_UNIT}\s*\}}?{_POWER.format('late')}\.?)\s*\Z"
)


def _unit_of(match: re.Match[str]) -> Unit:
    above, late = _ATOMS[match["above"]], match["late"]
    power = int(match["power"] or (late if not match["below"] else None) or 1)
    if match["word"]:
        power = 2 if match["word"].startswith("s") else 3
    dimension = above.dimension if power == 1 else f"{above.dimension}^{power}"
    factor = above.factor**power
    if match["below"]:
        below, root = _ATOMS[match["below"]], int(match["root"] or late or 1)
        dimension += f"/{below.dimension}" if root == 1 else f"/{below.dimension}^{root}"
        factor /= below.factor**root
    return Unit(dimension, factor)
