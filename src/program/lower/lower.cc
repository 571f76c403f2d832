#include "program/lower/lower.h"

#include "base/checked.h"
#include "program/lower/lowerer.h"
#include "tensor/rec_run.h"

namespace tessera {

HostInputLayout host_input_layout(const BatchShape& shape, int64_t n_embd, size_t n_classes) {
  HostInputLayout layout;
  const auto take = [&](int64_t elems) {
    const uint64_t at = layout.bytes;
    layout.bytes += round_up(static_cast<uint64_t>(elems) * 4, 64);
    return at;
  };
  layout.embeddings = take(shape.n_tokens * n_embd);
  layout.positions = take(shape.n_tokens);
  layout.seq_rows = take(shape.n_tokens);
  layout.output_rows = take(shape.n_outputs);
  layout.embedding_rows = take(shape.embeddings ? shape.n_tokens : 0);
  for (size_t c = 0; c < n_classes; ++c) {
    HostInputLayout::Class klass;
    klass.slots = take(shape.n_tokens);
    klass.page_table = take(shape.n_seqs * shape.row_pages);
    layout.classes.push_back(klass);
  }
  layout.rec_rows = take(shape.n_tokens);
  layout.rec_runs = take(shape.n_seqs * static_cast<int64_t>(sizeof(RecRun) / sizeof(int32_t)));
  return layout;
}

Result<Lowered> lower(const LowerInput& input) {
  return Lowerer(input).run();
}

}  // namespace tessera
