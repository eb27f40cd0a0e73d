//! The pre-tokenizers that GGUF files name, each as the models' own `tokenizer.json` has it.

use crate::split::Rule::{self, Isolate, Thousands};

/// How a byte-level BPE vocabulary splits text into words, and what else its name implies.
#[derive(Debug)]
pub struct Pretokenizer {
    /// The names in `tokenizer.ggml.pre`.
    pub names: &'static [&'static str],
    /// The steps, in order.
    pub rules: &'static [Rule],
    /// A word that is a token becomes that token, whatever the merges say.
    pub ignore_merges: bool,
    /// A text starts with the BOS token unless the file says otherwise.
    pub add_bos: bool,
}

/// GPT-2's words.
pub(crate) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const KIMI: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";

const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";

const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Cased letters, with the gaps that DeepSeek's list has.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+";

const DEEPSEEK_PUNCTUATION: &str = r"\s?[!-/:-~！-／：-～‘-‟　-。]+";

const CJK_AND_HANGUL: &str = "[一-龥ࠀ-一가-퟿]+";

const CJK_AND_KANA: &str = "[一-龥぀-ゟ゠-ヿ]+";

const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

const DIGIT: &str = r"\p{N}";

const fn plain(names: &'static [&'static str], rules: &'static [Rule]) -> Pretokenizer {
    Pretokenizer { names, rules, ignore_merges: false, add_bos: false }
}

const fn whole_words(names: &'static [&'static str], rules: &'static [Rule]) -> Pretokenizer {
    Pretokenizer { names, rules, ignore_merges: true, add_bos: false }
}

const fn after_bos(pre: Pretokenizer) -> Pretokenizer {
    Pretokenizer { add_bos: true, ..pre }
}

/// Every pre-tokenizer known by name.
pub static PRETOKENIZERS: &[Pretokenizer] = &[
    plain(
        &["default"],
        &[Isolate(r"[\p{P}\$\+<=>\^~\|]+"), Isolate(GPT2), Isolate(r"\p{N}+"), Isolate("[0-9][0-9][0-9]")],
    ),
    plain(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "gigachat",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
        ],
        &[Isolate(GPT2)],
    ),
    plain(
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[Isolate(DIGIT), Isolate(GPT2)],
    ),
    plain(&["falcon"], &[Isolate(r"[\p{P}\$\+<=>\^~\|`]+"), Isolate(GPT2), Isolate("[0-9][0-9][0-9]")]),
    after_bos(whole_words(
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        &[Isolate(LLAMA3)],
    )),
    plain(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[Isolate(LLAMA3)]),
    whole_words(&["glm4", "glm5"], &[Isolate(LLAMA3)]),
    whole_words(&["minicpm5"], &[Isolate(r"\p{N}{1,3}"), Isolate(LLAMA3)]),
    plain(
        &[
            "qwen2",
            "qwen3",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "megrez",
            "grok-2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
        ],
        &[Isolate(QWEN2)],
    ),
    plain(&["qwen35"], &[Isolate(QWEN35)]),
    plain(&["laguna"], &[Isolate(r"[^\n]+|\n+"), Isolate(QWEN2)]),
    plain(
        &["deepseek-llm"],
        &[
            Isolate(r"[\r\n]"),
            Isolate(DEEPSEEK_LETTERS),
            Isolate(DEEPSEEK_PUNCTUATION),
            Isolate(r"\s+$"),
            Isolate(CJK_AND_HANGUL),
            Isolate(r"\p{N}+"),
        ],
    ),
    plain(
        &["deepseek-coder"],
        &[
            Isolate(r"[\r\n]"),
            Isolate(r"\s?\p{L}+"),
            Isolate(r"\s?\p{P}+"),
            Isolate(CJK_AND_HANGUL),
            Isolate(DIGIT),
        ],
    ),
    plain(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[Isolate(r"\p{N}{1,3}"), Isolate(CJK_AND_KANA), Isolate(DEEPSEEK3)],
    ),
    after_bos(whole_words(&["tekken"], &[Isolate(TEKKEN)])),
    plain(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[Isolate(GPT4O)]),
    whole_words(&["granite-embed-multi-97m"], &[Isolate(GPT4O)]),
    plain(&["tiny_aya", "cohere2moe"], &[Thousands { bounded: true }, Isolate(GPT4O)]),
    plain(&["superbpe"], &[Isolate(r"\p{N}+"), Thousands { bounded: false }]),
    plain(&["kimi-k2"], &[Isolate(KIMI)]),
    plain(&["bailingmoe", "bailingmoe2", "llada-moe"], &[Isolate(BAILING)]),
    plain(&["exaone-moe"], &[Isolate(EXAONE_MOE)]),
    plain(&["seed-coder"], &[Isolate(SEED_CODER)]),
    plain(&["poro-chat", "bloom", "gpt3-finnish"], &[Isolate(BLOOM)]),
    plain(&["viking"], &[Isolate(BLOOM), Isolate(DIGIT)]),
];

/// The pre-tokenizer called `name`.
pub(crate) fn find(name: &str) -> Option<&'static Pretokenizer> {
    PRETOKENIZERS.iter().find(|pre| pre.names.contains(&name))
}

/// All names, separated by commas.
pub(crate) fn names() -> String {
    PRETOKENIZERS.iter().flat_map(|pre| pre.names).copied().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_listed_twice() {
        let mut names: Vec<_> = PRETOKENIZERS.iter().flat_map(|pre| pre.names).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
