#include "runtime/micro_batch.h"

#include <algorithm>
#include <cstring>

#include "tensor/quants.h"

namespace tessera {
namespace {

void write_ints(std::byte* at, const std::vector<int32_t>& values) {
  std::ranges::copy(values, reinterpret_cast<int32_t*>(at));
}

std::vector<int32_t> rows_that(std::span<const BatchToken> tokens, bool BatchToken::* want) {
  std::vector<int32_t> rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].*want) {
      rows.push_back(static_cast<int32_t>(i));
    }
  }
  return rows;
}

}  // namespace

std::vector<std::span<const BatchToken>> cut_batch(std::span<const BatchToken> batch, const BatchShape& shape) {
  std::vector<std::span<const BatchToken>> pieces;
  std::vector<int32_t> seqs;
  size_t begin = 0;
  int64_t n_outputs = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const bool new_seq = std::ranges::find(seqs, batch[i].seq) == seqs.end();
    const int64_t outputs = n_outputs + (batch[i].wants_logits ? 1 : 0);
    const bool full = static_cast<int64_t>(i - begin) == shape.n_tokens || outputs > shape.n_outputs ||
                      (new_seq && static_cast<int64_t>(seqs.size()) == shape.n_seqs);
    if (full) {
      pieces.push_back(batch.subspan(begin, i - begin));
      begin = i;
      n_outputs = 0;
      seqs.clear();
    }
    if (full || new_seq) {
      seqs.push_back(batch[i].seq);
    }
    n_outputs += batch[i].wants_logits ? 1 : 0;
  }
  if (begin < batch.size()) {
    pieces.push_back(batch.subspan(begin));
  }
  return pieces;
}

Status fill_embeddings(const ModelState& model, const HostInputLayout& layout, std::span<const BatchToken> tokens,
                       std::byte* block) {
  for (const Node& node : model.definition.program.nodes) {
    const auto* embed = std::get_if<EmbedNode>(&node.op);
    if (embed == nullptr) {
      continue;
    }
    const TensorSpec& spec = model.definition.table.tensors[static_cast<size_t>(embed->table)];
    const TensorInfo& info = model.file->tensors()[static_cast<size_t>(spec.source)];
    std::vector<std::byte> row(info.bytes_per_row());
    auto* out = reinterpret_cast<float*>(block + layout.embeddings);  // [n_tokens, n_embd] f32
    for (const BatchToken& token : tokens) {
      TRY(model.file->read(info, row.size() * static_cast<uint64_t>(token.token), row));
      dequantize_row(spec.dtype, row.data(), out, spec.columns);
      if (embed->scale != 1) {
        std::for_each(out, out + spec.columns, [&](float& x) { x *= embed->scale; });
      }
      out += spec.columns;
    }
    break;
  }
  return {};
}

WantedRows count_wanted(std::span<const BatchToken> tokens) {
  WantedRows wanted;
  for (const BatchToken& token : tokens) {
    wanted.n_logits += token.wants_logits ? 1 : 0;
    wanted.n_embeddings += token.wants_embedding ? 1 : 0;
  }
  return wanted;
}

void fill_inputs(const HostInputLayout& layout, const BatchShape& shape, std::span<const BatchToken> tokens,
                 const MemoryBatch& memory, std::byte* block) {
  const KvBatch& batch = memory.kv;
  write_ints(block + layout.positions, batch.positions);
  write_ints(block + layout.seq_rows, batch.seq_rows);
  for (size_t c = 0; c < batch.classes.size(); ++c) {
    const KvBatchClass& klass = batch.classes[c];
    write_ints(block + layout.classes[c].slots, klass.slots);
    const auto row = static_cast<size_t>(klass.row_pages);
    for (size_t r = 0; r < batch.row_seqs.size(); ++r) {
      std::memcpy(block + layout.classes[c].page_table + r * static_cast<size_t>(shape.row_pages) * sizeof(int32_t),
                  klass.page_table.data() + r * row, row * sizeof(int32_t));
    }
  }
  write_ints(block + layout.rec_rows, memory.rec_rows);
  std::ranges::copy(memory.rec_runs, reinterpret_cast<RecRun*>(block + layout.rec_runs));
  write_ints(block + layout.output_rows, rows_that(tokens, &BatchToken::wants_logits));
  write_ints(block + layout.embedding_rows, rows_that(tokens, &BatchToken::wants_embedding));
}

}  // namespace tessera
