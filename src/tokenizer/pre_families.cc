// The families of pre-tokenizers: names as in `tokenizer.ggml.pre`, expressions as in the models' tokenizer.json files
// and as measured on the reference (tests/data/tokenizer), which narrows some of them: contractions in ASCII only, case
// told apart in ASCII only for tekken and gpt-4o. Where an expression there could backtrack without bound, an equal one
// that cannot stands here instead and says so.

#include <algorithm>

#include "tokenizer/pre_tokenizer.h"

namespace tessera {
namespace {

// Word rules of these families, in pieces. CONTRACTION: 's 't 'm 'd 're 've 'll in any (ASCII) case.
#define CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define PUNCTUATION_AND_SPACE R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define ASCII_PUNCTUATION R"([!-/:-@\[-`{-~])"
// Letters except a-z, letters except A-Z: what "upper" and "lower" come to for tekken and gpt-4o.
#define UPPERISH R"([^a-z\P{L}])"
#define LOWERISH R"([^A-Z\P{L}])"
// The same with marks.
#define UPPERISH_OR_MARK R"([^a-z\p{N}\p{P}\p{S}\p{Z}\p{C}])"
#define LOWERISH_OR_MARK R"([^A-Z\p{N}\p{P}\p{S}\p{Z}\p{C}])"
#define PREFIX R"([^\r\n\p{L}\p{N}]?)"

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kDigits3 = R"(\p{N}{1,3})";
// Han as the reference lists it for kimi-k2: the unified ideographs, without their radicals and marks.
#define HAN \
  R"(\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{2F800}-\x{2FA1F})"

constexpr std::string_view kLlama3 = CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}{1,3})" PUNCTUATION_AND_SPACE;
constexpr std::string_view kQwen2 = CONTRACTION "|" PREFIX R"(\p{L}+|\p{N})" PUNCTUATION_AND_SPACE;
constexpr std::string_view kCjk = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)";
// From U+0800 to the last ideograph and Hangul, without the white space that lies between.
constexpr std::string_view kDeepseekCjk =
    R"([\x{800}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-)"
    R"(\x{9FA5}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kDeepseek3 = ASCII_PUNCTUATION
    R"([A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kNotPunctuated = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";
// The letters that deepseek-llm lists by range: the cased ones of Unicode 14.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"
    R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"
    R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"
    R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139})"
    R"(\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"
    R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";

// gpt-4o's words: an upper part, a lower part, one of them not empty.
#define CASED_WORDS(upper, lower, tail) PREFIX upper "*" lower "+" tail "|" PREFIX upper "+" lower "*" tail
#define LETTER_WORDS PREFIX R"([\p{L}\p{M}]+(?:)" CONTRACTION ")?"
#define SLASH_PUNCTUATION_AND_SPACE R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr std::string_view kTekken = CASED_WORDS(UPPERISH, LOWERISH, "") R"(|\p{N})" SLASH_PUNCTUATION_AND_SPACE;
constexpr std::string_view kGpt4o =
    CASED_WORDS(UPPERISH, LOWERISH, "(?:" CONTRACTION ")?") R"(|\p{N}{1,3})" SLASH_PUNCTUATION_AND_SPACE;
constexpr std::string_view kGraniteEmbed = CASED_WORDS(
    UPPERISH_OR_MARK, LOWERISH_OR_MARK, "(?:" CONTRACTION ")?") R"(|\p{N}{1,3})" SLASH_PUNCTUATION_AND_SPACE;
constexpr std::string_view kYoutuCjk =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+)"
    R"(|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-)"
    R"(\x{303F}\x{FE30}-\x{FE4F}]+)"
    R"(|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+)";
constexpr std::string_view kAfmoeCjk =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-)"
    R"(\x{2FDF}\x{E40}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{1100}-\x{11FF}]+)";
constexpr std::string_view kJais2 = CONTRACTION
    "|" PREFIX R"(\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))"
    R"(|\s{1,2}(?!\S)|\s)";
constexpr std::string_view kKimi =
    "[" HAN "]+|" PREFIX R"([^\P{L})" HAN "]+(?:" CONTRACTION R"()?|\p{N}{1,3})" PUNCTUATION_AND_SPACE;
// The model's own rule repeats a group that holds repeats; possessive ones match the same without room to backtrack.
constexpr std::string_view kExaoneMoe = CONTRACTION
    "|" PREFIX R"(\p{L}\p{M}*+(?: ?\p{L}\p{M}*+)*+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kLines = R"([^\n]+|\n+)";

}  // namespace

const PreFamily* find_pre_family(std::string_view name) {
  static const std::vector<PreFamily> kFamilies = {
      {.name = "default",
       .aliases = {},
       .stages = {{R"([\p{P}\$\+<=>\^~\|]+)"}, {kGpt2}, {R"(\p{N}+)"}, {"[0-9][0-9][0-9]"}},
       .tidy_spaces = true},
      {.name = "llama-bpe",
       .aliases = {"llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
       .stages = {{kLlama3}},
       .ignore_merges = true,
       .add_bos = true,
       .tidy_spaces = true},
      {.name = "dbrx", .aliases = {"smaug-bpe", "chatglm-bpe"}, .stages = {{kLlama3}}, .tidy_spaces = true},
      {.name = "glm4", .aliases = {"glm5"}, .stages = {{kLlama3}}, .ignore_merges = true, .tidy_spaces = true},
      {.name = "deepseek-llm",
       .stages = {{R"([\r\n])"},
                  {kDeepseekLetters},
                  {R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}\x{3002}]+)"},
                  {R"((?<!\s)\s++\z)"},  // \s+$, without trying every start inside a run
                  {kDeepseekCjk},
                  {R"(\p{N}+)"}}},
      {.name = "deepseek-coder",
       .stages = {{R"([\r\n])"}, {R"(\s?\p{L}+)"}, {R"(\s?\p{P}+)"}, {kDeepseekCjk}, {kDigit}}},
      {.name = "deepseek-v3", .aliases = {"hunyuan-dense", "joyai-llm"}, .stages = {{kDigits3}, {kCjk}, {kDeepseek3}}},
      {.name = "falcon", .stages = {{R"([\p{P}\$\+<=>\^~\|`]+)"}, {kGpt2}, {"[0-9][0-9][0-9]"}}, .tidy_spaces = true},
      {.name = "gpt-2",
       .aliases = {"mpt", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
                   "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "olmo", "jais", "exaone4"},
       .stages = {{kGpt2}},
       .tidy_spaces = true},
      {.name = "trillion", .aliases = {"granite-docling"}, .stages = {{kGpt2}}},
      {.name = "starcoder",
       .aliases = {"mellum2", "refact", "codeshell", "exaone", "minerva-7b"},
       .stages = {{kDigit}, {kGpt2}},
       .tidy_spaces = true},
      {.name = "smollm", .aliases = {"command-r"}, .stages = {{kDigit}, {kGpt2}}},
      {.name = "qwen2",
       .aliases = {"deepseek-r1-qwen", "kormo", "f2llmv2", "bailingmoe", "bailingmoe2", "llada-moe", "hunyuan",
                   "grok-2", "solar-open"},
       .stages = {{kQwen2}}},
      {.name = "stablelm2", .aliases = {"megrez"}, .stages = {{kQwen2}}, .tidy_spaces = true},
      {.name = "qwen35",
       .stages = {{CONTRACTION "|" PREFIX
                               R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
      {.name = "bloom", .aliases = {"gpt3-finnish"}, .stages = {{kNotPunctuated}}, .tidy_spaces = true},
      {.name = "poro-chat", .stages = {{kNotPunctuated}}},
      {.name = "viking", .stages = {{kNotPunctuated}, {kDigit}}},
      {.name = "tekken", .stages = {{kTekken}}, .ignore_merges = true, .add_bos = true},
      {.name = "gpt-4o", .aliases = {"llama4", "kanana2", "talkie", "minimax-m2"}, .stages = {{kGpt4o}}},
      {.name = "granite-embed-multi-97m", .stages = {{kGraniteEmbed}}, .ignore_merges = true},
      {.name = "superbpe", .stages = {{R"(\p{N}+)"}, {"[0-9]+", PreCut::kThousandStarts}}},
      {.name = "youtu",
       .stages = {{kYoutuCjk}, {LETTER_WORDS R"(|\p{N})" SLASH_PUNCTUATION_AND_SPACE}},
       .ignore_merges = true},
      {.name = "tiny_aya",
       .aliases = {"cohere2moe"},
       .stages = {{LETTER_WORDS R"(|\p{N}+)" SLASH_PUNCTUATION_AND_SPACE}, {R"(\p{N}+)", PreCut::kThousands}}},
      {.name = "afmoe", .stages = {{R"(\p{N}+)", PreCut::kThousandsAndBefore}, {kAfmoeCjk}, {kDeepseek3}}},
      {.name = "kimi-k2", .stages = {{kKimi}}},
      {.name = "laguna", .stages = {{kLines}, {kQwen2}}},
      {.name = "minicpm5",
       .stages = {{kDigits3}, {CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}+)" PUNCTUATION_AND_SPACE}},
       .ignore_merges = true,
       .tidy_spaces = true},
      {.name = "jais-2", .stages = {{kJais2}}, .tidy_spaces = true},
      {.name = "exaone-moe", .stages = {{kExaoneMoe}}, .tidy_spaces = true},
      {.name = "ufakzeka", .stages = {{PREFIX R"(\p{L}+|\p{N})" PUNCTUATION_AND_SPACE}}},
      {.name = "chameleon",
       .stages = {{"<sentinel:[0-9]+>"},
                  {"IMGIMG[A-I]{1,4}Z"},
                  {R"([\t\n]|    |  )"},
                  {kDigit},
                  {R"([\p{P}!-/:-@\[-`{-~])"},
                  {kGpt2}},
       .add_bos = true},
      {.name = "seed-coder",
       .stages = {{CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
      {.name = "mmbert", .aliases = {"sarvam-moe"}, .stages = {{kLines}}, .tidy_spaces = true, .mark_spaces = true},
      {.name = "gemma4",
       .aliases = {"granite-embed-multi-311m"},
       .stages = {{kLines}},
       .add_bos = true,
       .tidy_spaces = true,
       .mark_spaces = true},
  };
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(), [name](const PreFamily& family) {
    return family.name == name || std::find(family.aliases.begin(), family.aliases.end(), name) != family.aliases.end();
  });
  return found == kFamilies.end() ? nullptr : &*found;
}

}  // namespace tessera
