// tessera.h: text.

#include <fmt/format.h>

#include "api/handles.h"

namespace tessera::api {
namespace {

static_assert(static_cast<int>(TokenType::kUndefined) == TSR_TOKEN_UNDEFINED);
static_assert(static_cast<int>(TokenType::kNormal) == TSR_TOKEN_NORMAL);
static_assert(static_cast<int>(TokenType::kUnknown) == TSR_TOKEN_UNKNOWN);
static_assert(static_cast<int>(TokenType::kControl) == TSR_TOKEN_CONTROL);
static_assert(static_cast<int>(TokenType::kUserDefined) == TSR_TOKEN_USER_DEFINED);
static_assert(static_cast<int>(TokenType::kUnused) == TSR_TOKEN_UNUSED);
static_assert(static_cast<int>(TokenType::kByte) == TSR_TOKEN_BYTE);

Status check_flags(uint32_t flags, uint32_t known) {
  if ((flags & ~known) != 0) {
    return {ErrorCode::kInvalidArgument, fmt::format("flags {:#x} has bits that mean nothing", flags)};
  }
  return {};
}

Status check_id(const Tokenizer& tokenizer, int32_t id) {
  if (id < 0 || id >= tokenizer.n_vocab()) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("token id {} is not in the vocabulary of {}", id, tokenizer.n_vocab())};
  }
  return {};
}

tsr_vocab_info info_of(const tsr_model& model, const Tokenizer& t) {
  tsr_vocab_info info = {};
  info.model = model.vocab_model.c_str();
  info.pre_tokenizer = model.pre_tokenizer.c_str();
  info.n_tokens = t.n_vocab();
  info.bos = t.bos().value_or(TSR_NO_TOKEN);
  info.eos = t.eos().value_or(TSR_NO_TOKEN);
  info.eot = t.eot().value_or(TSR_NO_TOKEN);
  info.eom = t.eom().value_or(TSR_NO_TOKEN);
  info.unk = t.unk().value_or(TSR_NO_TOKEN);
  info.sep = t.sep().value_or(TSR_NO_TOKEN);
  info.pad = t.pad().value_or(TSR_NO_TOKEN);
  info.nl = t.nl().value_or(TSR_NO_TOKEN);
  info.fim_prefix = t.fim_prefix().value_or(TSR_NO_TOKEN);
  info.fim_suffix = t.fim_suffix().value_or(TSR_NO_TOKEN);
  info.fim_middle = t.fim_middle().value_or(TSR_NO_TOKEN);
  info.add_bos = t.add_bos();
  info.add_eos = t.add_eos();
  info.end_ids = t.end_of_generation_ids().data();
  info.n_end_ids = t.end_of_generation_ids().size();
  info.suppress_ids = model.suppress_ids.data();
  info.n_suppress_ids = model.suppress_ids.size();
  return info;
}

// Hands out the stream's text, which it keeps until its next call.
void lend_text(const tsr_stream& stream, const char** text, size_t* n_bytes) {
  *text = stream.text.c_str();
  if (n_bytes != nullptr) {
    *n_bytes = stream.text.size();
  }
}

}  // namespace
}  // namespace tessera::api

using namespace tessera;
using namespace tessera::api;

tsr_status tsr_tokenize(const tsr_model* model, const char* text, size_t n_bytes, uint32_t flags, int32_t** ids,
                        size_t* n) {
  return guarded([&]() -> Status {
    TRY(need_output(ids, "ids"));
    TRY(need_output(n, "n"));
    TRY(need(model, "model"));
    ASSIGN_OR_RETURN(const std::string_view given, text_argument(text, n_bytes, "text"));
    TRY(check_flags(flags, TSR_TOKENIZE_ADD_SPECIAL | TSR_TOKENIZE_PARSE_SPECIAL));
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*model->model));
    EncodeOptions options;
    options.add_special = (flags & TSR_TOKENIZE_ADD_SPECIAL) != 0;
    options.parse_special = (flags & TSR_TOKENIZE_PARSE_SPECIAL) != 0;
    give_ids(tokenizer->encode(given, options), ids, n);
    return {};
  });
}

tsr_status tsr_detokenize(const tsr_model* model, const int32_t* ids, size_t n, uint32_t flags, char** text,
                          size_t* n_bytes) {
  return guarded([&]() -> Status {
    TRY(need_sized_output(text, "text", n_bytes));
    TRY(need(model, "model"));
    ASSIGN_OR_RETURN(const std::span<const int32_t> given, array_argument(ids, n, "ids"));
    TRY(check_flags(flags, TSR_DETOKENIZE_SHOW_SPECIAL | TSR_DETOKENIZE_VERBATIM));
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*model->model));
    DecodeOptions options;
    options.show_special = (flags & TSR_DETOKENIZE_SHOW_SPECIAL) != 0;
    options.verbatim = (flags & TSR_DETOKENIZE_VERBATIM) != 0;
    give_text(tokenizer->decode(given, options), text, n_bytes);
    return {};
  });
}

tsr_status tsr_token_piece(const tsr_model* model, int32_t id, const char** bytes, size_t* n_bytes) {
  return guarded([&]() -> Status {
    TRY(need_output(bytes, "bytes"));
    TRY(need_output(n_bytes, "n_bytes"));
    TRY(need(model, "model"));
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*model->model));
    TRY(check_id(*tokenizer, id));
    const std::string_view piece = tokenizer->piece(id);
    *bytes = piece.data();
    *n_bytes = piece.size();
    return {};
  });
}

tsr_status tsr_token_get_info(const tsr_model* model, int32_t id, tsr_token_info* info, size_t struct_size) {
  return guarded([&]() -> Status {
    TRY(need(model, "model"));
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*model->model));
    TRY(check_id(*tokenizer, id));
    tsr_token_info known = {};
    known.text = tokenizer->text(id).data();
    known.n_text_bytes = tokenizer->text(id).size();
    known.type = static_cast<tsr_token_type>(tokenizer->type(id));
    known.is_end = tokenizer->is_end_of_generation(id);
    return write_struct(info, struct_size, known, "tsr_token_info");
  });
}

tsr_status tsr_token_find(const tsr_model* model, const char* text, size_t n_bytes, int32_t* id) {
  return guarded([&]() -> Status {
    TRY(need_output(id, "id", TSR_NO_TOKEN));
    TRY(need(model, "model"));
    ASSIGN_OR_RETURN(const std::string_view given, text_argument(text, n_bytes, "text"));
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*model->model));
    const std::optional<int32_t> found = tokenizer->find(given);
    if (!found) {
      return {ErrorCode::kNotFound, fmt::format("the vocabulary has no token \"{}\"", given)};
    }
    *id = *found;
    return {};
  });
}

tsr_status tsr_vocab_get_info(const tsr_model* model, tsr_vocab_info* info, size_t struct_size) {
  return guarded([&]() -> Status {
    TRY(need(model, "model"));
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*model->model));
    return write_struct(info, struct_size, info_of(*model, *tokenizer), "tsr_vocab_info");
  });
}

tsr_status tsr_stream_create(const tsr_model* model, bool show_special, tsr_stream** stream) {
  return guarded([&]() -> Status {
    TRY(need_output(stream, "stream"));
    TRY(need(model, "model"));
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*model->model));
    *stream = new tsr_stream{model->model, StreamDecoder(*tokenizer, show_special), {}};
    return {};
  });
}

void tsr_stream_free(tsr_stream* stream) {
  delete stream;
}

tsr_status tsr_stream_push(tsr_stream* stream, int32_t id, const char** text, size_t* n_bytes) {
  return guarded([&]() -> Status {
    TRY(need_sized_output(text, "text", n_bytes));
    TRY(need(stream, "stream"));
    TRY(check_id(stream->model->tokenizer(), id));
    stream->text = stream->decoder.push(id);
    lend_text(*stream, text, n_bytes);
    return {};
  });
}

tsr_status tsr_stream_flush(tsr_stream* stream, const char** text, size_t* n_bytes) {
  return guarded([&]() -> Status {
    TRY(need_sized_output(text, "text", n_bytes));
    TRY(need(stream, "stream"));
    stream->text = stream->decoder.flush();
    lend_text(*stream, text, n_bytes);
    return {};
  });
}
