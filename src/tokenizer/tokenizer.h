#pragma once
// Text to token ids and back, for the vocabularies that GGUF files carry.
//
// A Vocab is plain data: whoever reads the file fills it, this room knows no file format. A Tokenizer is made from one
// and never changes afterwards: every const function may be called from any number of threads at once. It owns all
// that it needs. Encoding cannot fail: a byte that a vocabulary cannot express becomes its unknown token (llama)
// or is left out (create() warns about such vocabularies). Work and memory are linear in the text up to a logarithm.
//
// Behaviour is that of llama.cpp, the engine most files are made for, except where tokenizer_test.cc and the list at
// Tokenizer::encode say otherwise.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

/// `tokenizer.ggml.token_type` as GGUF files number it. Other numbers count as kUndefined.
enum class TokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,      // stands for text without a token
  kControl = 3,      // never written by users: begin, end, role marks
  kUserDefined = 4,  // matched verbatim before anything else, also in user text
  kUnused = 5,
  kByte = 6,  // one byte, text "<0xNN>"
};

/// A vocabulary as the file states it; empty or nullopt where the file says nothing. Field names follow the keys under
/// `tokenizer.ggml.`; an id that is negative or not below tokens.size() is warned about (-1 is not) and counts as
/// absent.
struct Vocab {
  std::string model;                   // "llama", "gpt2" or "gemma4"
  std::string pre;                     // family of the pre-tokenizer (gpt2 only)
  std::string model_name;              // `general.name`: "phi-3" in it makes special tokens swallow spaces after them
  std::vector<std::string> tokens;     // [n_vocab]
  std::vector<float> scores;           // [n_vocab] or empty; llama only
  std::vector<TokenType> token_types;  // [n_vocab] or empty (all normal)
  std::vector<std::string> merges;     // "left right", by rank; gpt2 and gemma4
  std::optional<int64_t> bos_id, eos_id, eot_id, eom_id;
  std::optional<int64_t> unk_id, sep_id, pad_id, mask_id;
  std::optional<int64_t> fim_pre_id, fim_suf_id, fim_mid_id, fim_pad_id, fim_rep_id, fim_sep_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  bool remove_extra_whitespaces = false;  // kept for callers; neither family acts on it
  std::vector<int64_t> suppress_tokens;   // ids that generation must never choose
};

/// A piece of text with its origin: special tokens are recognised only where parse_special is true.
struct TextSpan {
  std::string_view text;
  bool parse_special = false;
};

struct EncodeOptions {
  bool parse_special = true;  // text of control tokens becomes those tokens
  bool add_special = false;   // BOS before and EOS after, where the model's metadata asks for them
};

struct DecodeOptions {
  bool show_special = true;  // text of control and unknown tokens is part of the result
  bool verbatim = false;     // nothing but the pieces in a row: keeps a space that encoding added in front and skips
                             // the "tidying" (no space before ? ! . , and some apostrophes) of older BPE families
};

class Tokenizer {
 public:
  /// Checks the vocabulary and builds all tables. warn (may be empty) receives each complaint as one sentence.
  /// Errors: kUnsupported for another model, named in the message; kInvalidData for an empty vocabulary or for scores
  /// or types that do not belong to the tokens. Everything else that is wrong is warned about and worked round:
  /// duplicate or empty texts, merges that name no token, missing byte tokens, ids out of range, an unknown `pre`
  /// (which is named and treated as "default").
  static Result<std::unique_ptr<Tokenizer>> create(Vocab vocab, const std::function<void(std::string_view)>& warn = {});
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Token ids of text. With a byte-complete vocabulary decode(encode(text), verbatim) gives back text, byte for byte
  /// (llama, gemma4: but for the added space, and U+2581 reads back as a space), also where it is not UTF-8.
  /// Better than the reference, on purpose:
  /// - gpt2: bytes that are not UTF-8 keep their own byte tokens, provided that the vocabulary has all of them (the
  ///   reference reads each as U+FFFD; so do we where a token is missing);
  /// - gpt2: a merge result without a token is spelled with byte tokens (the reference drops its non-ASCII letters);
  /// - llama: a space after the beginning of an unfinished character stays a space (the reference reads it back as
  ///   U+2581);
  /// - llama: a byte without a token becomes the unknown token (the reference gives up);
  /// - merging never makes a control or unknown token of ordinary text (the reference may, if the merges lead there).
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  /// Token ids of the concatenation of spans, as one text: words merge across borders between spans. A control token
  /// is recognised only where the whole of its text lies in adjacent spans with parse_special; user-defined tokens
  /// are recognised everywhere.
  std::vector<int32_t> encode(std::span<const TextSpan> spans, bool add_special) const;

  /// The bytes that a token stands for; the written text for control tokens. Empty for an id outside the vocabulary.
  /// The view lives as long as the tokenizer.
  std::string_view piece(int32_t id) const;

  /// The token's text as the vocabulary spells it ("Ġthe", "▁the", "<0x0A>"); empty for an id outside.
  std::string_view text(int32_t id) const;

  /// The whole text of ids; ids outside the vocabulary add nothing.
  std::string decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  /// The id whose vocabulary spelling is text, if there is one (the lowest among duplicates).
  std::optional<int32_t> find(std::string_view text) const;

  int32_t n_vocab() const;
  TokenType type(int32_t id) const;  // after correction: text like <|im_end|> is control whatever the file says
  bool is_control(int32_t id) const;
  bool is_user_defined(int32_t id) const;

  /// True for ids after which generation stops: those the file names and those known by their text.
  bool is_end_of_generation(int32_t id) const;
  std::span<const int32_t> end_of_generation_ids() const;  // ascending

  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  std::optional<int32_t> eot() const;  // end of turn, from the file or by its text
  std::optional<int32_t> eom() const;
  std::optional<int32_t> unk() const;
  std::optional<int32_t> sep() const;
  std::optional<int32_t> pad() const;
  std::optional<int32_t> nl() const;  // the token of "\n"; pad where it has none
  std::optional<int32_t> fim_prefix() const;
  std::optional<int32_t> fim_suffix() const;
  std::optional<int32_t> fim_middle() const;
  std::optional<int32_t> fim_repository() const;
  std::optional<int32_t> fim_separator() const;
  bool add_bos() const;
  bool add_eos() const;
  std::span<const int64_t> suppress_tokens() const;  // ids in range only
  std::string_view model() const;                    // "llama", "gpt2", "gemma4"
  std::string_view pre_tokenizer() const;  // family in use: "default" when the file's was unknown; "" for llama

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Turns ids into text as they arrive, never ending inside a UTF-8 character: bytes of an unfinished character wait for
/// the next ids. Bytes that can never become one pass unchanged. One stream, one thread; the tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool show_special = false)
      : tokenizer_(&tokenizer), show_special_(show_special) {}

  /// The text that is complete once id is added; often empty.
  std::string push(int32_t id);

  /// What still waits, complete or not; the stream may be used again afterwards.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool show_special_;
  std::string held_;  // at most 3 bytes between calls
};

}  // namespace tessera
