#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "tokenizer/bpe.h"
#include "tokenizer/byte_letters.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/special_ids.h"
#include "tokenizer/special_matcher.h"
#include "tokenizer/spm.h"
#include "tokenizer/text_table.h"
#include "tokenizer/tidy.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

using Warn = std::function<void(std::string_view)>;

constexpr size_t kMaxEntries = size_t{1} << 28;  // tokens or merges; keeps every id and sum of them in 32 bits

size_t n_bytes(std::span<const std::string> texts) {
  size_t n = 0;
  for (const std::string& text : texts) {
    n += text.size();
  }
  return n;
}

Status check_sizes(const Vocab& vocab) {
  const size_t n = vocab.tokens.size();
  if (n == 0) {
    return {ErrorCode::kInvalidData, "the vocabulary has no tokens (tokenizer.ggml.tokens is empty or missing)"};
  }
  if (n > kMaxEntries || vocab.merges.size() > kMaxEntries) {
    return {ErrorCode::kInvalidData, fmt::format("the vocabulary has {} tokens and {} merges; at most {} are possible",
                                                 n, vocab.merges.size(), kMaxEntries)};
  }
  const size_t n_text_bytes = n_bytes(vocab.tokens) + 2 * n_bytes(vocab.merges);  // merges: parts and results
  if (n_text_bytes > TextTable::kMaxBytes) {
    return {ErrorCode::kInvalidData, fmt::format("the texts of the vocabulary take {} bytes; at most {} are possible",
                                                 n_text_bytes, TextTable::kMaxBytes)};
  }
  if (!vocab.scores.empty() && vocab.scores.size() != n) {
    return {ErrorCode::kInvalidData,
            fmt::format("tokenizer.ggml.scores has {} entries for {} tokens", vocab.scores.size(), n)};
  }
  if (!vocab.token_types.empty() && vocab.token_types.size() != n) {
    return {ErrorCode::kInvalidData,
            fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens", vocab.token_types.size(), n)};
  }
  return {};
}

// The byte that a text like "<0x0A>" stands for.
std::optional<char> byte_of_text(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>' ||
      std::isxdigit(static_cast<unsigned char>(text[3])) == 0 ||
      std::isxdigit(static_cast<unsigned char>(text[4])) == 0) {
    return std::nullopt;
  }
  return static_cast<char>(std::stoi(std::string(text.substr(3, 2)), nullptr, 16));
}

// Byte letters back to bytes; what is no byte letter is shown as such, as the reference does, together with the whole
// text: once for each of them, so only texts of a sane length.
std::string bytes_of_letters(std::string_view text) {
  constexpr size_t kMaxShownBytes = 256;
  std::string bytes;
  for (size_t i = 0; i < text.size();) {
    size_t n = 0;
    if (const auto byte = byte_of_letter(text.substr(i), &n)) {
      bytes.push_back(*byte);
      i += n;
      continue;
    }
    const std::string_view character = text.substr(i, utf8_announced_bytes(text[i]));
    bytes += "[UNK_BYTE_0x";
    for (const char c : character) {
      bytes += fmt::format("{:02x}", static_cast<uint8_t>(c));
    }
    bytes += fmt::format("{}]", text.substr(0, kMaxShownBytes));
    i += character.size();
  }
  return bytes;
}

std::string lower_ascii(std::string text) {
  for (char& c : text) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return text;
}

}  // namespace

struct Tokenizer::Impl {
  Vocab vocab;      // what is large in it only while the tables are built
  TextTable texts;  // of the tokens by id; then of what merges need besides
  SpecialIds special;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  bool tidy = false;
  bool mark_spaces = false;  // llama and gemma4: spaces are U+2581 in token texts
  std::string pre_name;
  TextIndex words{texts};     // what text may become: all tokens but control ones (single characters excepted)
  TextIndex specials{texts};  // the others
  std::optional<SpecialMatcher> matcher;
  std::optional<SpmEncoder> spm;
  std::optional<PreTokenizer> pre;
  std::optional<BpeEncoder> bpe;
  std::optional<int32_t> newline;
  TextTable pieces;           // [n_vocab]
  bool byte_complete = true;  // gpt2: every byte from 0x80 on has a token
  std::array<bool, 256> no_token{};

  explicit Impl(Vocab v) : vocab(std::move(v)) {}

  [[nodiscard]] size_t n_vocab() const { return special.attributes.size(); }
  [[nodiscard]] bool in_range(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < n_vocab(); }
  [[nodiscard]] bool has(int32_t id, int attributes) const {
    return in_range(id) && (special.attributes[static_cast<size_t>(id)] & attributes) != 0;
  }

  Status build(const Warn& warn);
  void index_texts(const Warn& warn);
  void build_spm(const Warn& warn);
  Status build_bpe(const Warn& warn);
  void build_matcher();
  Status build_pieces();
  void find_newline();
  void warn_missing_bytes(std::vector<uint8_t> missing, const Warn& warn) const;
  [[nodiscard]] std::string piece_of(size_t id) const;
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text, std::span<const TextRange> template_ranges,
                                            bool strict, bool add_special) const;
  [[nodiscard]] bool spellable(std::string_view text) const;
  void encode_text(std::string_view text, bool after_special, std::string& marked, std::vector<size_t>& ends,
                   std::vector<int32_t>& ids) const;
};

Status Tokenizer::Impl::build(const Warn& warn) {
  if (vocab.model != "llama" && vocab.model != "gpt2" && vocab.model != "gemma4") {
    return {ErrorCode::kUnsupported,
            fmt::format("tokenizer model \"{}\" is not supported (llama, gpt2 and gemma4 are)", vocab.model)};
  }
  TRY(check_sizes(vocab));
  index_texts(warn);
  const bool llama = vocab.model == "llama";
  mark_spaces = llama;
  if (llama) {
    add_bos = true;
    add_space_prefix = vocab.add_space_prefix.value_or(true);
    build_spm(warn);
  } else {
    TRY(build_bpe(warn));
  }
  add_bos = vocab.model == "gemma4" || vocab.add_bos.value_or(add_bos);
  add_eos = vocab.add_eos.value_or(false);
  if ((add_bos && !special.bos) || (add_eos && !special.eos)) {
    if (warn) {
      warn("the vocabulary asks for BOS or EOS around texts but has no such token; none is added");
    }
    add_bos = add_bos && special.bos;
    add_eos = add_eos && special.eos;
  }
  // Not = {}, which keeps their memory.
  vocab.tokens = std::vector<std::string>();
  vocab.token_types = std::vector<TokenType>();
  vocab.merges = std::vector<std::string>();
  texts.shrink_to_fit();
  build_matcher();
  TRY(build_pieces());
  std::erase_if(vocab.suppress_tokens, [this](int64_t id) { return id < 0 || static_cast<size_t>(id) >= n_vocab(); });
  find_newline();
  return {};
}

void Tokenizer::Impl::index_texts(const Warn& warn) {
  const auto n = static_cast<int32_t>(vocab.tokens.size());
  texts.reserve(vocab.tokens.size(), n_bytes(vocab.tokens));
  for (const std::string& text : vocab.tokens) {
    texts.push_back(text);
  }
  size_t n_empty = 0;
  size_t n_repeated = 0;
  {
    TextIndex all(texts);
    all.reserve(texts.size());
    for (int32_t id = 0; id < n; ++id) {
      if (texts[static_cast<size_t>(id)].empty()) {
        ++n_empty;
      } else if (all.insert(id) != id) {
        ++n_repeated;
      }
    }
    special = resolve_special_ids(vocab, all, warn);
  }
  if ((n_empty > 0 || n_repeated > 0) && warn) {
    warn(fmt::format("{} tokens have no text and {} repeat the text of another; text never becomes these", n_empty,
                     n_repeated));
  }
  words.reserve(vocab.tokens.size() + vocab.merges.size() / 8);
  for (int32_t id = 0; id < n; ++id) {
    const std::string_view text = texts[static_cast<size_t>(id)];
    if (!text.empty()) {
      const bool one_character = text.size() <= utf8_announced_bytes(text[0]);
      (has(id, kAttrControl | kAttrUnknown) && !one_character ? specials : words).insert(id);
    }
  }
}

void Tokenizer::Impl::build_spm(const Warn& warn) {
  vocab.scores.resize(vocab.tokens.size());
  for (float& score : vocab.scores) {
    score = std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
  }
  spm.emplace(vocab.tokens, vocab.scores, words, special.unk);
  warn_missing_bytes(spm->missing_bytes(), warn);
}

Status Tokenizer::Impl::build_bpe(const Warn& warn) {
  const std::string name = vocab.model == "gemma4" ? "gemma4" : vocab.pre;
  const PreFamily* family = find_pre_family(name);
  pre_name = name;
  if (family == nullptr) {
    if (warn) {
      warn(name.empty()
               ? std::string("the vocabulary names no pre-tokenizer (tokenizer.ggml.pre); \"default\" is used, "
                             "which splits text wrongly for many models")
               : fmt::format("pre-tokenizer \"{}\" is not known; \"default\" is used in its place, which may "
                             "split text wrongly for this model",
                             name));
    }
    pre_name = "default";
    family = find_pre_family(pre_name);
  }
  ASSIGN_OR_RETURN(pre, PreTokenizer::create(*family));
  mark_spaces = family->mark_spaces;
  tidy = family->tidy_spaces;
  add_bos = family->add_bos;
  BpeOptions options;
  options.byte_letters = !family->mark_spaces;
  options.ignore_merges = family->ignore_merges;
  options.whole_newlines = family->mark_spaces;
  vocab.scores = std::vector<float>();
  bpe.emplace(vocab.merges, texts, words, options, warn);
  if (!mark_spaces) {
    for (const uint8_t byte : bpe->missing_bytes()) {
      no_token[byte] = true;
      byte_complete = byte_complete && byte < 0x80;
    }
  }
  warn_missing_bytes(bpe->missing_bytes(), warn);
  return {};
}

// Control characters, bytes that UTF-8 never uses and those of planes without characters are missing in many
// vocabularies and in nearly all texts.
void Tokenizer::Impl::warn_missing_bytes(std::vector<uint8_t> missing, const Warn& warn) const {
  std::erase_if(missing, [](uint8_t byte) {
    const bool control = (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
    return control || byte == 0xC0 || byte == 0xC1 || byte == 0xF1 || byte == 0xF2 || byte >= 0xF5;
  });
  if (!missing.empty() && warn) {
    warn(fmt::format("the vocabulary has no token for {} of the bytes that text is made of (the first is 0x{:02X}); {}",
                     missing.size(), missing[0],
                     spm && special.unk ? "they become the unknown token" : "they are left out"));
  }
}

void Tokenizer::Impl::build_matcher() {
  const std::string name = lower_ascii(vocab.model_name);
  const bool phi3 = name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
  std::vector<SpecialToken> tokens;
  for (size_t i = 0; i < n_vocab(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view text = texts[i];
    if (!has(id, kAttrControl | kAttrUnknown | kAttrUserDefined)) {
      continue;
    }
    SpecialToken token{text, id};
    if (has(id, kAttrControl | kAttrUnknown)) {
      token.scope = MatchScope::kTemplate;
    } else if (has(id, kAttrControlInFile)) {
      token.scope = MatchScope::kAnywhereUnlessStrict;
    }
    token.strip_right = phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    token.strip_left = vocab.pre.starts_with("jina-v2-") && text == "<mask>";
    tokens.push_back(token);
  }
  matcher.emplace(std::move(tokens));
}

std::string Tokenizer::Impl::piece_of(size_t i) const {
  const std::string_view text = texts[i];
  const auto id = static_cast<int32_t>(i);
  if (has(id, kAttrControl | kAttrUnknown | kAttrUserDefined)) {
    return std::string(text);
  }
  if (has(id, kAttrNormal)) {
    return mark_spaces ? unmark(text) : bytes_of_letters(text);
  }
  if (has(id, kAttrByte) && mark_spaces) {
    const auto byte = byte_of_text(text);
    return byte ? std::string(1, *byte) : std::string(text);
  }
  return {};
}

Status Tokenizer::Impl::build_pieces() {
  pieces.reserve(n_vocab(), texts.n_bytes());
  for (size_t i = 0; i < n_vocab(); ++i) {
    const std::string piece = piece_of(i);
    if (piece.size() > TextTable::kMaxBytes - pieces.n_bytes()) {
      return {ErrorCode::kInvalidData, fmt::format("the tokens up to {} stand for more than {} bytes; the vocabulary "
                                                   "is damaged",
                                                   i, TextTable::kMaxBytes)};
    }
    pieces.push_back(piece);
  }
  pieces.shrink_to_fit();
  return {};
}

void Tokenizer::Impl::find_newline() {
  const auto ids = spm ? std::vector<int32_t>{words.find("<0x0A>")} : encode("\n", {}, false, false);
  newline = !ids.empty() && in_range(ids[0]) ? std::optional<int32_t>(ids[0]) : special.pad;
}

std::vector<int32_t> Tokenizer::Impl::encode(std::string_view text, std::span<const TextRange> template_ranges,
                                             bool strict, bool add_special) const {
  std::vector<int32_t> ids;
  std::string marked;
  std::vector<size_t> ends;
  if (add_special && add_bos) {
    ids.push_back(*special.bos);
  }
  bool after_special = true;  // the beginning counts as one
  for (const Fragment& fragment : matcher->split(text, template_ranges, strict)) {
    if (fragment.id >= 0) {
      ids.push_back(fragment.id);
    } else {
      const TextRange range = fragment.range;
      encode_text(text.substr(range.begin, range.end - range.begin), after_special, marked, ends, ids);
    }
    after_special = fragment.id >= 0;
  }
  if (add_special && add_eos) {
    ids.push_back(*special.eos);
  }
  return ids;
}

// Whether every byte of text that is not UTF-8 has a token.
bool Tokenizer::Impl::spellable(std::string_view text) const {
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_valid_bytes(text.substr(i));
    if (n == 0 && no_token[static_cast<uint8_t>(text[i])]) {
      return false;
    }
    i += std::max<size_t>(n, 1);
  }
  return true;
}

// marked and ends are room to work in.
void Tokenizer::Impl::encode_text(std::string_view text, bool after_special, std::string& marked,
                                  std::vector<size_t>& ends, std::vector<int32_t>& ids) const {
  if (mark_spaces) {
    marked.clear();
    if (add_space_prefix && after_special) {
      marked += kSpaceMark;
    }
    append_marked(text, marked);
    text = marked;
  }
  if (spm) {
    spm->encode(text, ids);
    return;
  }
  if (!byte_complete && !spellable(text)) {
    marked = with_replacements(text);
    text = marked;
  }
  ends.clear();
  pre->split(text, ends);
  bpe->encode(text, ends, ids);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(Vocab vocab, const Warn& warn) {
  auto impl = std::make_unique<Impl>(std::move(vocab));
  TRY(impl->build(warn));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TextRange whole = {0, text.size()};
  const auto ranges = options.parse_special ? std::span<const TextRange>(&whole, 1) : std::span<const TextRange>();
  return impl_->encode(text, ranges, false, options.add_special);
}

std::vector<int32_t> Tokenizer::encode(std::span<const TextSpan> spans, bool add_special) const {
  std::string text;
  std::vector<TextRange> ranges;
  for (const TextSpan& span : spans) {
    if (span.parse_special && !span.text.empty()) {
      if (!ranges.empty() && ranges.back().end == text.size()) {
        ranges.back().end += span.text.size();
      } else {
        ranges.push_back({text.size(), text.size() + span.text.size()});
      }
    }
    text += span.text;
  }
  return impl_->encode(text, ranges, true, add_special);
}

std::string_view Tokenizer::piece(int32_t id) const {
  return impl_->in_range(id) ? impl_->pieces[static_cast<size_t>(id)] : std::string_view();
}

std::string_view Tokenizer::text(int32_t id) const {
  return impl_->in_range(id) ? impl_->texts[static_cast<size_t>(id)] : std::string_view();
}

std::string Tokenizer::decode(std::span<const int32_t> ids, DecodeOptions options) const {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!options.show_special && impl_->has(ids[i], kAttrControl | kAttrUnknown)) {
      continue;
    }
    std::string_view bytes = piece(ids[i]);
    if (i == 0 && impl_->add_space_prefix && !options.verbatim && bytes.starts_with(' ')) {
      bytes.remove_prefix(1);
    }
    text += bytes;
  }
  return impl_->tidy && !options.verbatim ? tidy_spaces(std::move(text)) : text;
}

std::optional<int32_t> Tokenizer::find(std::string_view text) const {
  int32_t id = impl_->words.find(text);
  if (!impl_->in_range(id)) {
    id = impl_->specials.find(text);
  }
  return impl_->in_range(id) ? std::optional<int32_t>(id) : std::nullopt;
}

int32_t Tokenizer::n_vocab() const {
  return static_cast<int32_t>(impl_->n_vocab());
}

TokenType Tokenizer::type(int32_t id) const {
  constexpr std::pair<int, TokenType> kByPrecedence[] = {{kAttrControl, TokenType::kControl},
                                                         {kAttrUnknown, TokenType::kUnknown},
                                                         {kAttrUserDefined, TokenType::kUserDefined},
                                                         {kAttrNormal, TokenType::kNormal},
                                                         {kAttrByte, TokenType::kByte},
                                                         {kAttrUnused, TokenType::kUnused}};
  for (const auto& [attribute, type] : kByPrecedence) {
    if (impl_->has(id, attribute)) {
      return type;
    }
  }
  return TokenType::kUndefined;
}

bool Tokenizer::is_control(int32_t id) const {
  return impl_->has(id, kAttrControl);
}
bool Tokenizer::is_user_defined(int32_t id) const {
  return impl_->has(id, kAttrUserDefined);
}
bool Tokenizer::is_end_of_generation(int32_t id) const {
  return std::ranges::binary_search(impl_->special.end_of_generation, id);
}
std::span<const int32_t> Tokenizer::end_of_generation_ids() const {
  return impl_->special.end_of_generation;
}

std::optional<int32_t> Tokenizer::bos() const {
  return impl_->special.bos;
}
std::optional<int32_t> Tokenizer::eos() const {
  return impl_->special.eos;
}
std::optional<int32_t> Tokenizer::eot() const {
  return impl_->special.eot;
}
std::optional<int32_t> Tokenizer::eom() const {
  return impl_->special.eom;
}
std::optional<int32_t> Tokenizer::unk() const {
  return impl_->special.unk;
}
std::optional<int32_t> Tokenizer::sep() const {
  return impl_->special.sep;
}
std::optional<int32_t> Tokenizer::pad() const {
  return impl_->special.pad;
}
std::optional<int32_t> Tokenizer::nl() const {
  return impl_->newline;
}
std::optional<int32_t> Tokenizer::fim_prefix() const {
  return impl_->special.fim_pre;
}
std::optional<int32_t> Tokenizer::fim_suffix() const {
  return impl_->special.fim_suf;
}
std::optional<int32_t> Tokenizer::fim_middle() const {
  return impl_->special.fim_mid;
}
std::optional<int32_t> Tokenizer::fim_repository() const {
  return impl_->special.fim_rep;
}
std::optional<int32_t> Tokenizer::fim_separator() const {
  return impl_->special.fim_sep;
}
bool Tokenizer::add_bos() const {
  return impl_->add_bos;
}
bool Tokenizer::add_eos() const {
  return impl_->add_eos;
}
std::span<const int64_t> Tokenizer::suppress_tokens() const {
  return impl_->vocab.suppress_tokens;
}
std::string_view Tokenizer::model() const {
  return impl_->vocab.model;
}
std::string_view Tokenizer::pre_tokenizer() const {
  return impl_->pre_name;
}

}  // namespace tessera
