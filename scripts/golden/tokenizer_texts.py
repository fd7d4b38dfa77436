"""Texts with the characters that tokenizers treat differently, for the scripts that write references."""
SAMPLES = [
    "", " ", "\n", "a", "Hello, world!", "don't DON'T we'll WE'LL I'm it's you've they'd 'S 'ſ",
    "  leading and trailing  ", "tabs\tand\r\nnew\n\n\nlines  \n  x", "12 123 1234 12345678901234567890 ٣٤٥ ½ Ⅷ",
    "Привет, мир! Ελληνικά עברית العربية हिन्दी ไทย 한국어 日本語テキスト 中文字符，标点。", "naïve café ñ ß ﬁ Ǆ",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ☕️ \U0001f9ff", "e\u0301 combining a\u0308\u0328", "zero\u200bwidth\ufeffbom\u00a0nbsp\u3000wide\u180evowel",
    "x" * 5000, " " * 5000 + "y", "\n" * 3000, "ab " * 3000, "word" + "!?" * 2000, "。" * 2000, "7" * 3000,
    "def f(x):\n    return {'a': [1, 2.5e-3], \"b\": x[0]}\n\n\tif x!=3 and y<=4:\n\t\tpass  # comment\n",
    "https://example.org/a/b?c=d&e=%20#f user@example.org $1,234.56 -- ... ___ +++", "<|endoftext|> <|bos|> </s>",
    "\x00\x01\x7f\x85\u2028\u2029", "İstanbul ıI ΣΑΣ ﷽ ꙮ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 ⁿ ² ㍍",
]
ALPHABETS = [
    (0x20, 0x7E), (0x20, 0x7E), (0x9, 0xD), (0xA0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA),
    (0x621, 0x64A), (0x905, 0x939), (0xE01, 0xE3A), (0x1100, 0x1112), (0x2000, 0x206F), (0x2190, 0x21FF),
    (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F64F), (0x300, 0x36F),
]
WORDS = ["", " ", " ", "\n", "'s", "  ", "12"]


def alphabet():
    """GPT-2's alphabet, in the order of the bytes."""
    out, extra = {}, 0x100
    for byte in range(256):
        prints = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        out[chr(byte if prints else extra)] = byte
        extra += not prints
    return out


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 6)):
        low, high = rng.choice(ALPHABETS)
        parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))))
        parts.append(rng.choice(WORDS))
    return "".join(parts)
