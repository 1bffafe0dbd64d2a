"""Scripts that write words without spaces between them: there a character is the unit of text."""

UNSPACED = (
    r"\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han, kana
    r"\U00020000-\U0003ffff"
    r"\u0e00-\u0eff"  # Thai, Lao
    r"\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Tibetan, Burmese, Khmer
)
"""For a character class of a regular expression."""
