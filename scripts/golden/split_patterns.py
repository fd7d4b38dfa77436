"""Split patterns whose pieces make_tokenizer_golden.py writes: of public tokenizers, and with what dialects read
differently."""
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
# The patterns of split_pattern.cpp.
KNOWN = [
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
    r"\s+(?!\S)|\s",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|(?>\p{N}{1,3})| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\z|\s*[\r\n]|"
    r"\s+(?!\S)|\s",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
# Cases in which the dialects differ, or PCRE2 did; first those for both comparisons below.
BOTH = KNOWN + [
    KIMI, r"\p{N}{1,3}+|\P{N}+", r"\p{N}{2}+.?|.", r"\p{N}{2,}+.?|.", r"\w+|\W+", r"\d+|\D", r"\h+|.", r"\s+$|\s|\S+", r"(?m:\w$)|.",
    r".+", r"[[:alpha:]]+|.", r"[[:punct:]]+|.", r"[[:^space:]]+", r"[\w&&[^\d_]]+|[^\w]", r"[^a-c&&b-z]+",
    r"[a-z&&[^aeiou]&&[^x-z]]+|.", r"[^[a-c][x-z]]+", r"\p{Han}+|\p{Hiragana}+|\p{Katakana}+|\p{Hangul}+|.",
    r"\p{Greek}+|\p{Cyrillic}+|\p{Latin}+|\p{Thai}+|[^\p{Latin}]", r"a{2}?|.", r"a{1,2}?b|.", r"a{,2}b|.", r"a+?b|.", r"\w*?.|\n", r"\w+?\w|.",
    r"(?i)ss|ff|st|k+|[^a-z]", r"(?i:[a-c]+|s)|.", r"a(?=b)|\w(?!\d)|.", r"(?>a|ab)c|.", r"a++b?|.",
    r"\x41|\x{e9}|\u0061|\t|\n|\r|\f|\a|\e|\v|[^\x00-\x20]", r"[\-a\]]+|[^\-]", r"[-a]+|.", r"\p{L}\p{M}*|.",
    r"\p{Alphabetic}+|\p{Lu}|\P{L}", r"\p{Letter}+|\p{Decimal_Number}|.", r"(?:a|b)+|.", r"(a|b){2}|.", r"\$\{|\.|\w",
]
TIKTOKEN = BOTH + [
    r"[a-z--[aeiou]]+|.", r"[a-f--c&&b-e]|.", r"[\w--\d--_]+|.", r"\pL+|\PL",
    r"(?i:[[:alpha:]]+)|.", r"(?i-s:.)|\n", r"(?s:.)\w?", r"(?s).", r"(?m)\s$|\S+|\s", r"\p{Nd}", r"a|b",
]
ONIGURUMA = BOTH + [
    r"", r"x*", r"\b", r"$", r"^", r"(?m).+", r"^\w+|.", r"\A\w|.", r"\w\Z|.", r"\w\z|.", r"\Ga", r"(?<=\s)\S", r"(?<!\d)\d",
    r"\R|.", r"\X", r"\N+", r"\O{3}", r"(?<x>a|b)\k<x>|.", r"(?x) a b | .", r"\p{^L}+", r"\p{Emoji}+|.", r"(?i:ß|ﬀ|k)|.",
    r"\K.", r"\H+", r"\p{Upper}+|\p{Punct}", r"\u0041+|.", r"a{2,1}|.", r"(?~ab)|.", r"\y", r"[[:word:]]+|\p{Word}|.",
    r"[[:alpha:]-]+|[[:^alpha:]]", r"\p{Alphabetic}+|\P{Lower}", r"[^[:punct:]a]+", r"[[:^punct:]]+", r"\p{^word}+|.", r"[\p{Mn}a]+|\P{Mc}", r"[\p{Punct}[:lower:]]+|.",
    r"(?W:\w+)|.", r"[\p{Han}\p{N}&&[^0-9]]+", r"[一-龥぀-ゟ゠-ヿ]+", r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
]
