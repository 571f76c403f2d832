#include "runtime/vocab_loader.h"

#include <fmt/format.h>

namespace tessera {
namespace {

std::string key(std::string_view name) {
  return fmt::format("tokenizer.ggml.{}", name);
}

Status read_id(const Metadata& meta, std::string_view name, std::optional<int64_t>& id) {
  if (meta.has(key(name))) {
    ASSIGN_OR_RETURN(const int64_t value, [&]() -> Result<int64_t> {
      // Some files store -1 for "none".
      const auto as_signed = meta.get_i32(key(name));
      if (as_signed.ok()) {
        return int64_t{*as_signed};
      }
      ASSIGN_OR_RETURN(const uint32_t as_unsigned, meta.get_u32(key(name)));
      return int64_t{as_unsigned};
    }());
    id = value;
  }
  return {};
}

Status read_flag(const Metadata& meta, std::string_view name, std::optional<bool>& flag) {
  if (meta.has(key(name))) {
    ASSIGN_OR_RETURN(flag, meta.get_bool(key(name)));
  }
  return {};
}

}  // namespace

Result<Vocab> load_vocab(const Metadata& meta) {
  Vocab vocab;
  if (!meta.has(key("model"))) {
    return Status(ErrorCode::kUnsupported,
                  "the file has no vocabulary (key tokenizer.ggml.model is missing): it decodes token ids only, as "
                  "bench and logits do");
  }
  ASSIGN_OR_RETURN(const std::string_view model, meta.get_string(key("model")));
  if (model == "no_vocab") {
    return Status(ErrorCode::kUnsupported,
                  "the file has no vocabulary (tokenizer.ggml.model is no_vocab): it decodes token ids only, as bench "
                  "and logits do");
  }
  ASSIGN_OR_RETURN(const std::string_view pre, meta.get_string(key("pre"), ""));
  ASSIGN_OR_RETURN(const std::string_view name, meta.get_string("general.name", ""));
  vocab.model = model;
  vocab.pre = pre;
  vocab.model_name = name;
  ASSIGN_OR_RETURN(const std::vector<std::string_view> tokens, meta.get_string_array(key("tokens")));
  vocab.tokens.assign(tokens.begin(), tokens.end());
  if (meta.has(key("scores"))) {
    ASSIGN_OR_RETURN(vocab.scores, meta.get_f32_array(key("scores")));
  }
  if (meta.has(key("token_type"))) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> types, meta.get_i32_array(key("token_type")));
    for (const int32_t type : types) {
      vocab.token_types.push_back(static_cast<TokenType>(type));
    }
  }
  if (meta.has(key("merges"))) {
    ASSIGN_OR_RETURN(const std::vector<std::string_view> merges, meta.get_string_array(key("merges")));
    vocab.merges.assign(merges.begin(), merges.end());
  }
  TRY(read_id(meta, "bos_token_id", vocab.bos_id));
  TRY(read_id(meta, "eos_token_id", vocab.eos_id));
  TRY(read_id(meta, "eot_token_id", vocab.eot_id));
  TRY(read_id(meta, "eom_token_id", vocab.eom_id));
  TRY(read_id(meta, "unknown_token_id", vocab.unk_id));
  TRY(read_id(meta, "seperator_token_id", vocab.sep_id));  // spelled so in files
  TRY(read_id(meta, "padding_token_id", vocab.pad_id));
  TRY(read_id(meta, "mask_token_id", vocab.mask_id));
  TRY(read_id(meta, "fim_pre_token_id", vocab.fim_pre_id));
  TRY(read_id(meta, "fim_suf_token_id", vocab.fim_suf_id));
  TRY(read_id(meta, "fim_mid_token_id", vocab.fim_mid_id));
  TRY(read_id(meta, "fim_pad_token_id", vocab.fim_pad_id));
  TRY(read_id(meta, "fim_rep_token_id", vocab.fim_rep_id));
  TRY(read_id(meta, "fim_sep_token_id", vocab.fim_sep_id));
  TRY(read_flag(meta, "add_bos_token", vocab.add_bos));
  TRY(read_flag(meta, "add_eos_token", vocab.add_eos));
  TRY(read_flag(meta, "add_space_prefix", vocab.add_space_prefix));
  ASSIGN_OR_RETURN(vocab.remove_extra_whitespaces, meta.get_bool(key("remove_extra_whitespaces"), false));
  if (meta.has(key("suppress_tokens"))) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> suppress, meta.get_i32_array(key("suppress_tokens")));
    vocab.suppress_tokens.assign(suppress.begin(), suppress.end());
  }
  return vocab;
}

}  // namespace tessera
