#include "tokenizer/special_ids.h"

#include <algorithm>
#include <fmt/format.h>
#include <span>
#include <string>

namespace tessera {
namespace {

using Warn = std::function<void(std::string_view)>;
using Texts = std::span<const std::string_view>;

// Measured on the reference one text at a time. Where several of a list are present, the first wins.
constexpr std::string_view kEndOfTurn[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",     "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>"};
constexpr std::string_view kEndOfMessage[] = {"<|eom_id|>"};
constexpr std::string_view kFimPrefix[] = {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",    "<｜fim▁begin｜>",
                                           "<PRE>",          "▁<PRE>",       "<|code_prefix|>", "<|prefix|>"};
constexpr std::string_view kFimSuffix[] = {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",    "<｜fim▁hole｜>",
                                           "<SUF>",          "▁<SUF>",       "<|code_suffix|>", "<|suffix|>"};
constexpr std::string_view kFimMiddle[] = {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",    "<｜fim▁end｜>",
                                           "<MID>",          "▁<MID>",       "<|code_middle|>", "<|middle|>"};
constexpr std::string_view kFimPad[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kFimRepository[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::string_view kFimSeparator[] = {"<|file_sep|>"};
constexpr std::string_view kEndOfGeneration[] = {"<|eot_id|>",
                                                 "<|im_end|>",
                                                 "<|end|>",
                                                 "<|return|>",
                                                 "<|call|>",
                                                 "<|flush|>",
                                                 "<|calls|>",
                                                 "<end_of_turn>",
                                                 "<|endoftext|>",
                                                 "</s>",
                                                 "<|eom_id|>",
                                                 "<EOT>",
                                                 "_<EOT>",
                                                 "[EOT]",
                                                 "[EOS]",
                                                 "<|end_of_text|>",
                                                 "<end_of_utterance>",
                                                 "<eos>",
                                                 "<turn|>",
                                                 "<|tool_response>",
                                                 "<｜end▁of▁sentence｜>",
                                                 "[e~["};
// Parts of gpt-oss's message format that a reader of raw text must see.
constexpr std::string_view kAlwaysShown[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

constexpr int64_t kNoneUnsigned = 0xFFFFFFFF;  // some files write -1, signed or not, for a token they do not have

uint8_t attribute_of(TokenType type) {
  switch (type) {
    case TokenType::kNormal: return kAttrNormal;
    case TokenType::kUnknown: return kAttrUnknown;
    case TokenType::kControl: return kAttrControl | kAttrControlInFile;
    case TokenType::kUserDefined: return kAttrUserDefined;
    case TokenType::kUnused: return kAttrUnused;
    case TokenType::kByte: return kAttrByte;
    case TokenType::kUndefined: break;
  }
  return 0;
}

class Resolver {
 public:
  Resolver(const Vocab& vocab, const TextIndex& texts, const Warn& warn) : vocab_(vocab), texts_(texts), warn_(warn) {}

  SpecialIds run() {
    const size_t n = vocab_.tokens.size();
    ids_.attributes.assign(n, kAttrNormal);
    for (size_t i = 0; i < std::min(n, vocab_.token_types.size()); ++i) {
      ids_.attributes[i] = attribute_of(vocab_.token_types[i]);
    }
    take_named_ids();
    find_role(kEndOfTurn, ids_.eot);
    find_role(kEndOfMessage, ids_.eom);
    find_role(kFimPrefix, ids_.fim_pre);
    find_role(kFimSuffix, ids_.fim_suf);
    find_role(kFimMiddle, ids_.fim_mid);
    find_role(kFimPad, ids_.fim_pad);
    find_role(kFimRepository, ids_.fim_rep);
    find_role(kFimSeparator, ids_.fim_sep);
    collect_ends();
    return std::move(ids_);
  }

 private:
  void take_named_ids() {
    const bool llama = vocab_.model == "llama";
    ids_.bos = checked("bos", vocab_.bos_id, llama ? 1 : -1);
    ids_.eos = checked("eos", vocab_.eos_id, llama ? 2 : -1);
    ids_.unk = checked("unknown", vocab_.unk_id, llama ? 0 : -1);
    ids_.eot = checked("eot", vocab_.eot_id, -1);
    ids_.eom = checked("eom", vocab_.eom_id, -1);
    ids_.sep = checked("separator", vocab_.sep_id, -1);
    ids_.pad = checked("padding", vocab_.pad_id, -1);
    ids_.mask = checked("mask", vocab_.mask_id, -1);
    ids_.fim_pre = checked("fim_pre", vocab_.fim_pre_id, -1);
    ids_.fim_suf = checked("fim_suf", vocab_.fim_suf_id, -1);
    ids_.fim_mid = checked("fim_mid", vocab_.fim_mid_id, -1);
    ids_.fim_pad = checked("fim_pad", vocab_.fim_pad_id, -1);
    ids_.fim_rep = checked("fim_rep", vocab_.fim_rep_id, -1);
    ids_.fim_sep = checked("fim_sep", vocab_.fim_sep_id, -1);
  }

  [[nodiscard]] bool in_range(int64_t id) const { return id >= 0 && static_cast<size_t>(id) < vocab_.tokens.size(); }

  std::optional<int32_t> checked(std::string_view role, std::optional<int64_t> id, int32_t fallback) {
    if (id && in_range(*id)) {
      return static_cast<int32_t>(*id);
    }
    if (id && *id != -1 && *id != kNoneUnsigned && warn_) {
      warn_(
          fmt::format("the {} token is {}, outside of the vocabulary of {}; ignored", role, *id, vocab_.tokens.size()));
    }
    return in_range(fallback) ? std::optional<int32_t>(fallback) : std::nullopt;
  }

  [[nodiscard]] bool knows(std::string_view text) const { return texts_.find(text) >= 0; }

  // Token ids among texts, in the order of texts.
  [[nodiscard]] std::vector<int32_t> present(Texts texts) const {
    std::vector<int32_t> found;
    for (const std::string_view text : texts) {
      const int32_t id = texts_.find(text);
      if (id >= 0) {
        found.push_back(id);
      }
    }
    return found;
  }

  void find_role(Texts texts, std::optional<int32_t>& role) {
    const auto found = present(texts);
    if (!role && !found.empty()) {
      role = found[0];
      make_control(found[0]);
    }
  }

  void make_control(int32_t id) { ids_.attributes[static_cast<size_t>(id)] |= kAttrControl; }

  void collect_ends() {
    std::vector<int32_t>& ends = ids_.end_of_generation;
    ends = present(kEndOfGeneration);
    for (const int32_t id : ends) {
      make_control(id);
    }
    // Gemma 4 keeps </s> as a piece of HTML.
    if (knows("<|tool_response>")) {
      std::erase(ends, texts_.find("</s>"));
    }
    for (const auto& role : {ids_.fim_pad, ids_.fim_rep, ids_.fim_sep, ids_.eos, ids_.eot, ids_.eom}) {
      if (role) {
        ends.push_back(*role);
      }
    }
    for (const int32_t id : present(kAlwaysShown)) {
      show(id);
    }
    // gpt-oss and solar-open end a message, not the turn, with <|end|>.
    const bool gpt_oss = knows("<|return|>") && knows("<|call|>");
    const bool solar = knows("<|calls|>") && knows("<|flush|>");
    if ((gpt_oss || solar) && knows("<|end|>")) {
      std::erase(ends, texts_.find("<|end|>"));
      show(texts_.find("<|end|>"));
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }

  // Makes a token part of the visible text.
  void show(int32_t id) {
    uint8_t& attributes = ids_.attributes[static_cast<size_t>(id)];
    attributes = static_cast<uint8_t>(kAttrUserDefined | (attributes & kAttrControlInFile));
  }

  const Vocab& vocab_;
  const TextIndex& texts_;
  const Warn& warn_;
  SpecialIds ids_;
};

}  // namespace

SpecialIds resolve_special_ids(const Vocab& vocab, const TextIndex& texts, const Warn& warn) {
  return Resolver(vocab, texts, warn).run();
}

}  // namespace tessera
