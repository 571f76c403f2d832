#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iostream>
#include <limits>
#include <random>
#include <thread>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/test_vocabs.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr DecodeOptions kVerbatim = {.show_special = true, .verbatim = true};

// ---- vocabularies that are refused or complained about ----

Status refusal(Vocab vocab) {
  return Tokenizer::create(std::move(vocab)).status();
}

TEST(TokenizerCreate, RefusesWhatItCannotRead) {
  Vocab vocab = byte_vocab("gpt-2");
  vocab.model = "bert";
  EXPECT_EQ(refusal(vocab).code(), ErrorCode::kUnsupported);
  EXPECT_THAT(refusal(vocab).message(), HasSubstr("bert"));
  EXPECT_EQ(refusal(Vocab{}).code(), ErrorCode::kUnsupported);
  vocab.model = "gpt2";
  vocab.tokens.clear();
  EXPECT_EQ(refusal(vocab).code(), ErrorCode::kInvalidData);
  vocab = spm_vocab({"a"});
  vocab.scores.pop_back();
  EXPECT_EQ(refusal(vocab).code(), ErrorCode::kInvalidData);
  EXPECT_THAT(refusal(vocab).message(), HasSubstr("259 entries for 260 tokens"));
  vocab = spm_vocab({"a"});
  vocab.token_types.push_back(TokenType::kNormal);
  EXPECT_EQ(refusal(vocab).code(), ErrorCode::kInvalidData);
}

TEST(TokenizerCreate, UnknownOrMissingPreTokenizerIsNamedAndReadAsDefault) {
  std::vector<std::string> warnings;
  const auto unknown = make_tokenizer(byte_vocab("no-such-family"), &warnings);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("no-such-family")));
  EXPECT_EQ(unknown->pre_tokenizer(), "default");
  warnings.clear();
  make_tokenizer(byte_vocab(""), &warnings);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("tokenizer.ggml.pre")));
}

TEST(TokenizerCreate, HostileByteVocabulary) {
  Vocab vocab = byte_vocab("gpt-2", {"", "", "ab", "ab", "a", "\xFF\xFE", "Ġ"});
  vocab.token_types.assign(vocab.tokens.size(), static_cast<TokenType>(77));
  vocab.token_types[10] = static_cast<TokenType>(-5);
  vocab.merges = {"a b", "a b", "nothere neither", "", " ", "x", "x ", " x y", "q q", "qq qq", "a\xFF b"};
  vocab.bos_id = 1'000'000;
  vocab.eos_id = -1;
  vocab.unk_id = std::numeric_limits<int64_t>::min();
  vocab.add_bos = true;
  vocab.suppress_tokens = {-1, 5, 1 << 30};
  std::vector<std::string> warnings;
  const auto tokenizer = make_tokenizer(vocab, &warnings);
  EXPECT_GE(warnings.size(), 5U);
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_EQ(tokenizer->find("ab"), 258);
  EXPECT_EQ(tokenizer->suppress_tokens().size(), 1U);
  EXPECT_THAT(tokenizer->encode("cab"), ElementsAre('c', 258));
  // "qqqq" merges into what no token is: spelled in bytes.
  EXPECT_THAT(tokenizer->encode("qqqq"), ElementsAre('q', 'q', 'q', 'q'));
  for (const int32_t id : {-1, 0, 256, 261, 262, 263, std::numeric_limits<int32_t>::max()}) {
    tokenizer->piece(id);
    tokenizer->text(id);
    tokenizer->type(id);
    EXPECT_FALSE(tokenizer->is_end_of_generation(id));
  }
  const std::vector<int32_t> beyond = {-7, 1 << 20};
  EXPECT_EQ(tokenizer->decode(beyond), "");
}

TEST(TokenizerCreate, HostileSpmVocabulary) {
  Vocab vocab;
  vocab.model = "llama";
  vocab.tokens = {"", "\xE2\x96\x81", "a", "aa", "aa", "<0xZZ>", "\xC3"};
  vocab.token_types.assign(7, TokenType::kNormal);
  vocab.token_types[5] = TokenType::kByte;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  vocab.scores = {nan, nan, 1, nan, std::numeric_limits<float>::infinity(), -1, 0};
  std::vector<std::string> warnings;
  auto tokenizer = make_tokenizer(vocab, &warnings);
  EXPECT_THAT(warnings, testing::Contains(HasSubstr("no token for")));
  EXPECT_THAT(tokenizer->encode("aaaa"), ElementsAre(1, 3, 3));
  EXPECT_THAT(tokenizer->encode("b"), ElementsAre(1, 0));  // 0 is the default unknown token
  vocab.tokens = {"x"};
  vocab.token_types = {TokenType::kControl};
  vocab.scores = {};
  warnings.clear();
  tokenizer = make_tokenizer(vocab, &warnings);
  EXPECT_THAT(tokenizer->encode("xyx"), ElementsAre(0, 0, 0, 0, 0, 0));  // three bytes of U+2581, then one each
}

// Each character that is no byte letter is shown with the text around it, which must not become its square.
TEST(TokenizerCreate, LongTextWithoutByteLetters) {
  std::string text;
  for (int i = 0; i < 20000; ++i) {
    text += "日";
  }
  std::vector<std::string> warnings;
  const auto tokenizer = make_tokenizer(byte_vocab("gpt-2", {"日", text}), &warnings);
  EXPECT_EQ(tokenizer->piece(256), "[UNK_BYTE_0xe697a5日]");
  EXPECT_LT(tokenizer->piece(257).size(), 300U * 20000);
  EXPECT_EQ(tokenizer->text(257), text);
}

TEST(TokenizerCreate, OneTokenOfEachModel) {
  for (const char* model : {"llama", "gpt2", "gemma4"}) {
    Vocab vocab;
    vocab.model = model;
    vocab.pre = "llama-bpe";
    vocab.tokens = {"a"};
    std::vector<std::string> warnings;
    const auto tokenizer = make_tokenizer(std::move(vocab), &warnings);
    for (const char* text : {"", "a", "aa", "b c\n", "\xFF", "日本"}) {
      for (const int32_t id : tokenizer->encode(text, {.parse_special = true, .add_special = true})) {
        EXPECT_EQ(id, 0);
      }
    }
  }
}

TEST(TokenizerCreate, RandomVocabulariesDoNoHarm) {
  const unsigned seed = 31;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const auto random_text = [&random](size_t longest) {
    std::string text;
    for (size_t n = random() % (longest + 1); n > 0; --n) {
      const std::string parts[] = {"a", "b", "▁", " ", "Ġ", "é", "<0x41>", "<|im_end|>", "\n"};
      text += random() % 6 == 0 ? std::string(1, static_cast<char>(random())) : parts[random() % std::size(parts)];
    }
    return text;
  };
  const auto random_id = [&random](size_t n) -> std::optional<int64_t> {
    return random() % 2 == 0 ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(random() % (2 * n + 2)) - 1);
  };
  for (int round = 0; round < 600; ++round) {
    Vocab vocab;
    vocab.model = std::vector<std::string>{"llama", "gpt2", "gemma4"}[random() % 3];
    vocab.pre = std::vector<std::string>{"", "gpt-2", "llama-bpe", "gemma4", "superbpe"}[random() % 5];
    const size_t n = 1 + random() % 40;
    for (size_t i = 0; i < n; ++i) {
      vocab.tokens.push_back(random_text(4));
      vocab.token_types.push_back(static_cast<TokenType>(static_cast<int>(random() % 9) - 1));
      vocab.scores.push_back(static_cast<float>(random() % 5));
      vocab.merges.push_back(random_text(2) + " " + random_text(2));
    }
    vocab.bos_id = random_id(n);
    vocab.eos_id = random_id(n);
    vocab.unk_id = random_id(n);
    vocab.pad_id = random_id(n);
    vocab.add_bos = random() % 2 == 0;
    vocab.add_eos = random() % 2 == 0;
    std::vector<std::string> warnings;
    const auto tokenizer = make_tokenizer(std::move(vocab), &warnings);
    for (int i = 0; i < 10; ++i) {
      const std::string text = random_text(60);
      const TextSpan spans[] = {{text, true}, {text, false}};
      for (const auto& ids : {tokenizer->encode(text, {.parse_special = i % 2 == 0, .add_special = true}),
                              tokenizer->encode(spans, true)}) {
        StreamDecoder stream(*tokenizer, true);
        std::string streamed;
        for (const int32_t id : ids) {
          ASSERT_GE(id, 0);
          ASSERT_LT(id, tokenizer->n_vocab());
          streamed += stream.push(id);
        }
        streamed += stream.flush();
        ASSERT_EQ(streamed, tokenizer->decode(ids, kVerbatim));
      }
    }
  }
}

// ---- byte pairs ----

Vocab merging_vocab(std::string pre) {
  Vocab vocab = byte_vocab(std::move(pre), {"he", "ll", "llo", "hello", "Ġhello", "Ġh", "<|end|>", "<|user|>"});
  vocab.merges = {"h e", "l l", "ll o", "he llo", "Ġ hello"};
  vocab.token_types.assign(vocab.tokens.size(), TokenType::kNormal);
  vocab.token_types[262] = TokenType::kControl;
  vocab.token_types[263] = TokenType::kControl;
  vocab.bos_id = 263;
  vocab.eos_id = 262;
  return vocab;
}

TEST(TokenizerBpe, MergesByRank) {
  const auto tokenizer = make_tokenizer(merging_vocab("gpt-2"));
  EXPECT_THAT(tokenizer->encode("hello hello hell"), ElementsAre(259, 260, ' ', 256, 257));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("hello hello hell")), "hello hello hell");
}

TEST(TokenizerBpe, FramesOnlyWhenAsked) {
  Vocab vocab = merging_vocab("gpt-2");
  vocab.add_bos = true;
  vocab.add_eos = true;
  const auto tokenizer = make_tokenizer(std::move(vocab));
  EXPECT_THAT(tokenizer->encode("he"), ElementsAre(256));
  EXPECT_THAT(tokenizer->encode("he", {.parse_special = true, .add_special = true}), ElementsAre(263, 256, 262));
  EXPECT_THAT(tokenizer->encode("", {.parse_special = true, .add_special = true}), ElementsAre(263, 262));
}

TEST(TokenizerBpe, ControlTextIsATokenOnlyWhereItIsParsed) {
  const auto tokenizer = make_tokenizer(merging_vocab("gpt-2"));
  EXPECT_THAT(tokenizer->encode("<|user|>he<|end|>"), ElementsAre(263, 256, 262));
  const auto plain = tokenizer->encode("<|end|>", {.parse_special = false, .add_special = false});
  EXPECT_THAT(plain, ElementsAre('<', '|', 'e', 'n', 'd', '|', '>'));
}

// Merges that lead to the text of a control token stop short of it: nothing that a user writes becomes one.
TEST(TokenizerBpe, MergesNeverMakeControlTokens) {
  Vocab vocab = byte_vocab("gpt-2", {"zz", "zzz"});
  vocab.merges = {"z z", "zz z"};
  vocab.token_types.assign(vocab.tokens.size(), TokenType::kNormal);
  vocab.token_types[257] = TokenType::kControl;
  const auto tokenizer = make_tokenizer(vocab);
  EXPECT_THAT(tokenizer->encode("zzz", {.parse_special = false, .add_special = false}), ElementsAre('z', 'z', 'z'));
  EXPECT_THAT(tokenizer->encode("zzz"), ElementsAre(257));
  vocab.pre = "llama-bpe";  // takes whole words
  vocab.add_bos = false;
  EXPECT_THAT(make_tokenizer(vocab)->encode("zzz", {.parse_special = false, .add_special = false}),
              ElementsAre('z', 'z', 'z'));
}

std::vector<std::string> words(std::string_view family, std::string_view text) {
  const PreFamily* found = find_pre_family(family);
  EXPECT_NE(found, nullptr) << family;
  std::vector<size_t> ends;
  PreTokenizer::create(*found)->split(text, ends);
  std::vector<std::string> result;
  size_t begin = 0;
  for (const size_t end : ends) {
    result.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return result;
}

// Splits that the models' own documentation or the issue trackers of engines name.
TEST(PreTokenizer, KnownSplits) {
  EXPECT_THAT(words("gpt-2", "Hello world's 123!"), ElementsAre("Hello", " world", "'s", " 123", "!"));
  EXPECT_THAT(words("llama-bpe", "I'LL pay 12345$"), ElementsAre("I", "'LL", " pay", " ", "123", "45", "$"));
  EXPECT_THAT(words("qwen2", "x=12+y"), ElementsAre("x", "=", "1", "2", "+y"));  // kekzl/imp#660
  EXPECT_THAT(words("qwen2", "(a) $b\n\n"), ElementsAre("(a", ")", " $", "b", "\n\n"));
  EXPECT_THAT(words("qwen2", "e\u0301a"), ElementsAre("e", "\u0301a"));  // surogate#105: marks are qwen35's
  EXPECT_THAT(words("qwen35", "e\u0301a"), ElementsAre("e\u0301a"));
  EXPECT_THAT(words("gpt-4o", "fooBar HTTPServer"), ElementsAre("foo", "Bar", " HTTPServer"));
  EXPECT_THAT(words("tekken", "fooBar 42"), ElementsAre("foo", "Bar", " ", "4", "2"));
  EXPECT_THAT(words("deepseek-v3", "日本12345 ab.cd"), ElementsAre("日本", "123", "45", " ab", ".cd"));
  EXPECT_THAT(words("deepseek-llm", "a b  \n"), ElementsAre("a", " b", "  ", "\n"));
  EXPECT_THAT(words("smollm", "ab 12"), ElementsAre("ab", " ", "1", "2"));
  EXPECT_THAT(words("gemma4", "a b\n\nc"), ElementsAre("a b", "\n\n", "c"));
  EXPECT_THAT(words("superbpe", "x1234567"), ElementsAre("x", "1", "234", "567"));
  EXPECT_THAT(words("tiny_aya", "1234567"), ElementsAre("1", "234", "567"));
  EXPECT_THAT(words("default", "a1234."), ElementsAre("a", "123", "4", "."));
}

TEST(PreTokenizer, EveryNameBelongsToOneFamily) {
  for (const char* name : {"default", "gpt-2", "llama-bpe", "smollm", "qwen2", "deepseek-r1-qwen", "qwen35", "gpt-4o",
                           "tekken", "deepseek-llm", "deepseek-coder", "deepseek-v3", "gemma4", "laguna", "kimi-k2"}) {
    EXPECT_NE(find_pre_family(name), nullptr) << name;
  }
  EXPECT_EQ(find_pre_family("llama3"), find_pre_family("llama-bpe"));
  EXPECT_EQ(find_pre_family(""), nullptr);
}

TEST(PreTokenizer, BytesThatAreNotUtf8KeepTheirPlaces) {
  EXPECT_THAT(words("gpt-2", "ab\xFF\xC3 c\xE6\x97"), ElementsAre("ab", "\xFF\xC3", " c", "\xE6\x97"));
  EXPECT_THAT(words("qwen2", "\x80"), ElementsAre("\x80"));
  EXPECT_THAT(words("qwen2", ""), IsEmpty());
}

// All families. A rule that backtracked over a run more than once per character would not come to an end here.
TEST(PreTokenizer, LongRunsOfOneKind) {
  const char* names[] = {"default",     "llama-bpe", "deepseek-llm", "deepseek-coder",
                         "deepseek-v3", "falcon",    "gpt-2",        "starcoder",
                         "smollm",      "qwen2",     "qwen35",       "bloom",
                         "viking",      "tekken",    "gpt-4o",       "granite-embed-multi-97m",
                         "superbpe",    "youtu",     "tiny_aya",     "afmoe",
                         "kimi-k2",     "laguna",    "minicpm5",     "jais-2",
                         "exaone-moe",  "ufakzeka",  "chameleon",    "seed-coder",
                         "gemma4"};
  for (const std::string name : names) {
    const auto pre = PreTokenizer::create(*find_pre_family(name));
    ASSERT_TRUE(pre.ok());
    for (const std::string unit :
         {"a",      "A",  "aA", " ",  "\n",   "\t ", "1",       "!",  "é",      "É",       "日",
          "\u0301", "a ", "'",  "'s", "\xFF", "/",   "क\u093f", "😀", "\u3000", "a\u0301 "}) {
      const size_t n_bytes = unit == "1" || unit == " " || unit == "a" || unit == "\n" ? 1'000'000 : 50'000;
      std::string text;
      while (text.size() < n_bytes) {
        text += unit;
      }
      text += "日x";
      std::vector<size_t> ends;
      pre->split(text, ends);
      ASSERT_FALSE(ends.empty());
      EXPECT_EQ(ends.back(), text.size()) << name;
      EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end()));
    }
  }
}

TEST(TokenizerBpe, AMegabyteInOneWord) {
  Vocab vocab = byte_vocab("gpt-2");
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) {
      vocab.tokens.push_back({a, b});
      vocab.merges.push_back({a, ' ', b});
    }
  }
  std::string run = "aa";  // and a ladder of merges over runs of one letter
  while (run.size() < 1024) {
    vocab.tokens.push_back(run + run);
    vocab.merges.push_back(run + " " + run);
    run += run;
  }
  const auto tokenizer = make_tokenizer(std::move(vocab));
  const std::string same(1 << 20, 'a');
  EXPECT_EQ(tokenizer->encode(same).size(), 1024U);
  std::mt19937 random(5);
  std::string letters(300'000, ' ');
  for (char& c : letters) {
    c = static_cast<char>('a' + random() % 26);
  }
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(letters), kVerbatim), letters);
}

// ---- SentencePiece ----

TEST(TokenizerSpm, BestScoreFirst) {
  const auto tokenizer = make_tokenizer(spm_vocab({"▁a", "bc", "ab", "▁", "a", "b", "c"}));
  // "▁a" and "bc" beat "ab".
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("abc")), ElementsAre(" a", "bc"));
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("ab")), ElementsAre(" a", "b"));
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("éa")), ElementsAre(" ", "\xC3", "\xA9", "a"));
}

// The space in front: at the beginning and after every special token, nowhere else (reports: #23840, #4772).
TEST(TokenizerSpm, SpacePrefix) {
  Vocab vocab = spm_vocab({"▁", "a", "b", "▁a", "▁b"});
  const auto tokenizer = make_tokenizer(vocab);
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("a<s>b a")), ElementsAre(" a", "<s>", " b", " a"));
  EXPECT_THAT(tokenizer->encode(""), IsEmpty());
  EXPECT_THAT(tokenizer->encode("", {.parse_special = true, .add_special = true}), ElementsAre(1));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a b")), "a b");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a b"), kVerbatim), " a b");
  vocab.add_space_prefix = false;
  const auto bare = make_tokenizer(vocab);
  EXPECT_THAT(pieces(*bare, bare->encode("a<s>b a")), ElementsAre("a", "<s>", "b", " a"));
  EXPECT_EQ(bare->decode(bare->encode(" a")), " a");
}

TEST(TokenizerSpm, TokensAcrossWordsAreFound) {
  // "a▁b" forbids cutting the text in front of every space; the result must not know of the cutting.
  const auto tokenizer = make_tokenizer(spm_vocab({"a▁", "a▁b", "▁", "a", "b", "c", "▁c"}));
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("a b c")), ElementsAre(" ", "a b", " c"));
}

TEST(TokenizerSpm, AMegabyteOfOneLetter) {
  std::vector<std::string> extra = {"▁"};
  for (size_t n = 1; n <= 64; n *= 2) {
    extra.emplace_back(n, 'a');
  }
  Vocab vocab = spm_vocab(extra);
  vocab.add_space_prefix = false;
  const auto tokenizer = make_tokenizer(vocab);
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(tokenizer->encode(text).size(), (1U << 20) / 64);
  const std::string spaces(1 << 20, ' ');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(spaces), kVerbatim), spaces);
}

// ---- any bytes, both ways ----

TEST(Tokenizer, EveryByteSurvives) {
  const unsigned seed = 99;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  Vocab spm = spm_vocab({"▁", "a", "b", "ab", "▁a", "é"});
  spm.add_space_prefix = false;
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(make_tokenizer(spm));
  for (const char* pre : {"default", "gpt-2", "llama-bpe", "qwen35", "deepseek-llm", "gpt-4o", "kimi-k2", "afmoe"}) {
    Vocab vocab = byte_vocab(pre, {"aĊ", "ÿÃ", "Ġa", "Ã©"});
    vocab.merges = {"a Ċ", "ÿ Ã", "Ġ a", "Ã ©"};
    vocab.add_bos = false;
    tokenizers.push_back(make_tokenizer(std::move(vocab)));
  }
  const std::string parts[] = {
      "a", " ", "\n", "é", "日", "😀", "'s", "12", "\xFF", "\xC3", "\xE2\x96", "\x80", std::string(1, '\0')};
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (size_t n = random() % 20; n > 0; --n) {
      text += random() % 4 == 0 ? std::string(1, static_cast<char>(random())) : parts[random() % std::size(parts)];
    }
    for (const auto& tokenizer : tokenizers) {
      const auto ids = tokenizer->encode(text, {.parse_special = false, .add_special = false});
      ASSERT_EQ(tokenizer->decode(ids, kVerbatim), text) << tokenizer->pre_tokenizer();
    }
  }
}

TEST(Tokenizer, AByteWithoutTokenReadsAsReplacementCharacter) {
  Vocab vocab = byte_vocab("gpt-2");
  vocab.tokens[0xFF] = "nothing";
  const auto tokenizer = make_tokenizer(std::move(vocab));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xFF"
                                                "b\x80")),
            "a\uFFFDb\uFFFD");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("b\x80")), "b\x80");
}

// ---- spans ----

TEST(TokenizerSpans, WordsMergeAcrossBorders) {
  const auto tokenizer = make_tokenizer(merging_vocab("gpt-2"));
  const TextSpan spans[] = {
      {"<|user|>he", true}, {"llo", false}, {" he", true}, {"llo<|end|>", false}, {"<|end|>", true}};
  const auto ids = tokenizer->encode(spans, false);
  EXPECT_THAT(std::vector<int32_t>(ids.begin(), ids.begin() + 3), ElementsAre(263, 259, 260));
  EXPECT_EQ(ids.back(), 262);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 262), 1);  // the one that the user wrote is text
  EXPECT_EQ(tokenizer->decode(ids), "<|user|>hello hello<|end|><|end|>");
}

TEST(TokenizerSpans, NoTokenOfHalfTheUsersText) {
  const auto tokenizer = make_tokenizer(merging_vocab("gpt-2"));
  const TextSpan split[] = {{"<|us", true}, {"", false}, {"er|>", true}};
  EXPECT_THAT(tokenizer->encode(split, false), ElementsAre(263));
  const TextSpan forged[] = {{"<|us", true}, {"er|>", false}};
  EXPECT_THAT(tokenizer->encode(forged, false), testing::Not(testing::Contains(263)));
  const TextSpan all_user[] = {{"<|user|>", false}};
  EXPECT_THAT(tokenizer->encode(all_user, false), testing::Not(testing::Contains(263)));
  EXPECT_THAT(tokenizer->encode(std::span<const TextSpan>(), false), IsEmpty());
}

TEST(TokenizerSpans, AnyCuttingOfUserTextGivesTheSameIds) {
  std::mt19937 random(4);
  const auto tokenizer = make_tokenizer(pair_vocab("gpt-2"));
  const std::string text = "Hello wörld's 日本語  \n\n text, 12345 and <more> of it";
  const auto whole = tokenizer->encode(text, {.parse_special = false, .add_special = false});
  for (int round = 0; round < 50; ++round) {
    std::vector<TextSpan> spans;
    for (size_t at = 0; at < text.size();) {
      const size_t n = std::min(text.size() - at, random() % 9);
      spans.push_back({std::string_view(text).substr(at, n), random() % 2 == 0});
      at += n;
    }
    ASSERT_EQ(tokenizer->encode(spans, false), whole);
  }
}

// The reference shows gpt-oss's format tokens as user-defined, so that it reads them in user text as well. In a chat
// they stay what the file says: control.
TEST(TokenizerSpans, GptOssFormatIsNotForUsers) {
  Vocab vocab = byte_vocab("gpt-4o", {"<|start|>", "<|end|>", "<|message|>", "<|return|>", "<|call|>"});
  vocab.token_types.assign(vocab.tokens.size(), TokenType::kNormal);
  std::fill(vocab.token_types.begin() + 256, vocab.token_types.end(), TokenType::kControl);
  const auto tokenizer = make_tokenizer(std::move(vocab));
  EXPECT_THAT(tokenizer->encode("<|message|>", {.parse_special = false, .add_special = false}), ElementsAre(258));
  EXPECT_FALSE(tokenizer->is_control(258));
  const TextSpan user[] = {{"<|message|>", false}};
  EXPECT_EQ(tokenizer->encode(user, false).size(), 11U);
  const TextSpan own[] = {{"<|message|>", true}};
  EXPECT_THAT(tokenizer->encode(own, false), ElementsAre(258));
  EXPECT_THAT(tokenizer->end_of_generation_ids(), ElementsAre(259, 260));  // <|end|> ends a message, not the turn
}

// ---- roles ----

TEST(TokenizerRoles, EndOfGenerationByText) {
  Vocab vocab = byte_vocab("gpt-2", {"<|im_end|>", "<|eom_id|>", "<|fim_pad|>", "<|fim_prefix|>", "</s>"});
  vocab.eos_id = 65;
  const auto tokenizer = make_tokenizer(vocab);
  EXPECT_THAT(tokenizer->end_of_generation_ids(), ElementsAre(65, 256, 257, 258, 260));
  EXPECT_TRUE(tokenizer->is_end_of_generation(256));
  EXPECT_FALSE(tokenizer->is_end_of_generation(259));
  EXPECT_EQ(tokenizer->eot(), 256);
  EXPECT_EQ(tokenizer->eom(), 257);
  EXPECT_EQ(tokenizer->fim_prefix(), 259);
  EXPECT_EQ(tokenizer->type(256), TokenType::kControl);  // whatever the file says
  EXPECT_EQ(tokenizer->type(65), TokenType::kNormal);
  EXPECT_EQ(tokenizer->nl(), '\n');
}

TEST(TokenizerRoles, LlamaDefaults) {
  const auto tokenizer = make_tokenizer(spm_vocab({"▁"}));
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokenizer->unk(), 0);
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_FALSE(tokenizer->add_eos());
  EXPECT_EQ(tokenizer->nl(), 3 + '\n');
  EXPECT_EQ(tokenizer->type(3), TokenType::kByte);
}

TEST(TokenizerRoles, Gemma4AlwaysBegins) {
  Vocab vocab = spm_vocab({"▁", "a"});
  vocab.model = "gemma4";
  vocab.bos_id = 1;
  vocab.add_bos = false;
  EXPECT_TRUE(make_tokenizer(std::move(vocab))->add_bos());
}

// ---- streams ----

TEST(StreamDecoder, NeverSplitsACharacter) {
  const auto tokenizer = make_tokenizer(byte_vocab("gpt-2"));
  std::mt19937 random(8);
  const std::string parts[] = {"a", "é", "日", "😀", "\xFF", "\xE6\x97", "\xF0\x9F", "\xC3"};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) {
      text += parts[random() % std::size(parts)];
    }
    std::vector<bool> inside(text.size() + 1, false);  // a character
    for (size_t i = 0; i < text.size(); ++i) {
      for (size_t k = 1; k < utf8_valid_bytes(std::string_view(text).substr(i)); ++k) {
        inside[i + k] = true;
      }
    }
    StreamDecoder stream(*tokenizer);
    std::string whole;
    for (const char byte : text) {
      whole += stream.push(static_cast<uint8_t>(byte));
      EXPECT_FALSE(inside[whole.size()]);
    }
    whole += stream.flush();
    ASSERT_EQ(whole, text);
    EXPECT_EQ(stream.flush(), "");
  }
}

TEST(StreamDecoder, HidesControlTokensUnlessAsked) {
  const auto tokenizer = make_tokenizer(merging_vocab("gpt-2"));
  StreamDecoder hiding(*tokenizer);
  EXPECT_EQ(hiding.push(262), "");
  EXPECT_EQ(hiding.push(259), "hello");
  EXPECT_EQ(hiding.push(-3), "");
  StreamDecoder showing(*tokenizer, true);
  EXPECT_EQ(showing.push(262), "<|end|>");
}

TEST(Tokenizer, ManyThreadsOneTokenizer) {
  const auto tokenizer = make_tokenizer(pair_vocab("qwen2"));
  const std::string text = "The quick brown fox, 12345 日本語 — and so on.\n";
  const auto expected = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::vector<int> n_equal(4);
  for (int& n : n_equal) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        n += tokenizer->encode(text) == expected ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(n_equal, testing::Each(200));
}

}  // namespace
}  // namespace tessera
