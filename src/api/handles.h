#pragma once
// What the opaque handles of tessera.h are. Private to this room.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/border.h"
#include "runtime/context.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"

struct tsr_model {
  std::shared_ptr<tessera::Model> model;
  // Copies with a NUL behind, where the engine has views.
  std::vector<std::string> metadata_keys;
  std::string vocab_model;
  std::string pre_tokenizer;
  std::vector<int32_t> suppress_ids;
  std::string recommended_samplers;  // the chain, as parse_sampler_names() reads it
};

struct tsr_context {
  std::unique_ptr<tessera::Context> context;  // keeps its model
  std::atomic<bool> in_use = false;           // by a call
};

struct tsr_sampler {
  tessera::SamplerOptions options;  // with the seed in use
  tessera::DryBreakers breakers;
  std::optional<tessera::GrammarMatcher> grammar;  // at its beginning
  std::shared_ptr<tessera::Model> model;           // whose tokenizer follows; null without one
  const tessera::Tokenizer* tokenizer = nullptr;
  tessera::Sampler sampler;
};

struct tsr_stream {
  std::shared_ptr<tessera::Model> model;
  tessera::StreamDecoder decoder;
  std::string text;  // of the last call
};

struct tsr_chat_template {
  std::shared_ptr<tessera::Model> model;
  tessera::ChatTemplate chat_template;
};

namespace tessera::api {

/// The engine's form of a caller's options. Errors: kInvalidArgument, kUnsupported.
Result<ContextOptions> context_options(const tsr_context_options* given);

/// The tokenizer of a model. Errors: the reason why there is none.
inline Result<const Tokenizer*> tokenizer_of(const Model& model) {
  TRY(model.text_status());
  return &model.tokenizer();
}

/// A row of the last decode's logits, [n_vocab] f32. Errors: kInvalidArgument.
Result<std::span<const float>> logits_row(const Context& context, int64_t row);

/// Runs `Status body(Context&)` as the one call in a context, guarded. Errors also: kInvalidArgument for NULL, kBusy.
template <typename Body>
tsr_status on_context(tsr_context* handle, Body&& body) noexcept {
  return guarded([&]() -> Status {
    TRY(need(handle, "context"));
    if (handle->in_use.exchange(true, std::memory_order_acquire)) {
      return {ErrorCode::kBusy, "another call uses this context; contexts serve one call at a time"};
    }
    struct Release {
      std::atomic<bool>& in_use;
      ~Release() { in_use.store(false, std::memory_order_release); }
    } const release{handle->in_use};
    return body(*handle->context);
  });
}

}  // namespace tessera::api
