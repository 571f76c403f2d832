#include "runtime/context_state.h"

#include <algorithm>
#include <fmt/format.h>
#include <new>

#include "base/files.h"
#include "kernels/ops/kv_layout.h"
#include "runtime/fingerprint.h"

namespace tessera {
namespace {

// The rows of one kind (keys or values) of one layer and cut.
struct Rows {
  std::byte* page_begin = nullptr;  // these rows in page 0
  uint64_t page_bytes = 0;          // from page to page
  std::byte* state = nullptr;       // the first position of the cut's first head
  uint64_t row_bytes = 0;
  uint64_t n_heads = 0;
  int64_t first = 0;
  int64_t length = 0;
};

// One copy per page: a rectangle of heads by positions.
void add_copies(const Rows& rows, std::span<const int32_t> pages, bool restoring, CommandList& list) {
  const uint64_t state_pitch = static_cast<uint64_t>(rows.length - rows.first) * rows.row_bytes;
  for (int64_t position = rows.first; position < rows.length; position += kPageTokens) {
    const auto page = static_cast<uint64_t>(pages[static_cast<size_t>(position / kPageTokens)]);
    std::byte* const in_page = rows.page_begin + page * rows.page_bytes;
    std::byte* const in_state = rows.state + static_cast<uint64_t>(position - rows.first) * rows.row_bytes;
    const uint64_t page_pitch = kPageTokens * rows.row_bytes;
    const uint64_t width = static_cast<uint64_t>(std::min(kPageTokens, rows.length - position)) * rows.row_bytes;
    Command command;
    command.copy = {.dst = restoring ? in_page : in_state,
                    .src = restoring ? in_state : in_page,
                    .dst_pitch = restoring ? page_pitch : state_pitch,
                    .src_pitch = restoring ? state_pitch : page_pitch,
                    .width = width,
                    .rows = rows.n_heads,
                    .count = RowCount::kFixed};
    command.name = restoring ? "restore state" : "save state";
    list.push_back(std::move(command));
  }
}

}  // namespace

Result<StateShape> state_shape(const ModelState& model, const ContextOptions& options) {
  StateShape shape;
  ASSIGN_OR_RETURN(shape.fingerprint, model_fingerprint(*model.file));
  shape.k_type = options.k_type;
  shape.v_type = options.v_type;
  shape.n_vocab = model.definition.info.n_vocab;
  for (const KvLayerSpec& layer : model.definition.program.kv_layers) {
    shape.layers.push_back({layer.n_kv_heads, layer.k_dim, layer.v_dim, layer.window});
  }
  return shape;
}

StateContent content_of(const StateShape& shape, const KvCache& kv, const KvClasses& classes,
                        std::span<const std::vector<int32_t>> tokens, int32_t seq, int64_t n_logits) {
  StateContent content;
  content.whole = seq == kAllSequences;
  content.n_logits = content.whole ? n_logits : 0;
  for (int32_t s = 0; s < kv.config().n_seq_max; ++s) {
    if (content.whole ? kv.length(s) == 0 : s != seq) {
      continue;
    }
    StateSequence sequence;
    sequence.seq = content.whole ? s : 0;
    sequence.tokens = tokens[static_cast<size_t>(s)];
    for (const int32_t klass : classes.of_layer) {
      sequence.kv.push_back({kv.first_position(klass, s), 0, 0});
    }
    content.sequences.push_back(std::move(sequence));
  }
  plan_state(shape, content);
  return content;
}

Result<SequenceMemory> restored_book(const SequenceMemory& memory, const KvClasses& classes,
                                     const StateContent& content, int32_t seq) {
  SequenceMemory book = memory;
  if (content.whole) {
    book.clear();
  }
  for (const StateSequence& sequence : content.sequences) {
    std::vector<int64_t> first(classes.windows.size(), -1);
    for (size_t l = 0; l < classes.of_layer.size(); ++l) {
      int64_t& of_class = first[static_cast<size_t>(classes.of_layer[l])];
      if (of_class >= 0 && of_class != sequence.kv[l].first) {
        return Status(ErrorCode::kInvalidData,
                      fmt::format("the state is damaged: layer {} holds sequence {} from position {} on, a layer of "
                                  "the same window from {} on",
                                  l, sequence.seq, sequence.kv[l].first, of_class));
      }
      of_class = sequence.kv[l].first;
    }
    TRY(book.restore(content.whole ? sequence.seq : seq, static_cast<int64_t>(sequence.tokens.size()), first));
  }
  return book;
}

void add_state_copies(const StateMemory& memory, const StateSequence& rows, int32_t seq, std::byte* bytes,
                      bool restoring, DeviceLists& lists) {
  const ModelState& m = memory.model;
  const auto length = static_cast<int64_t>(rows.tokens.size());
  lists.resize(m.devices.size());
  for (size_t i = 0; i < memory.kv_bases.size(); ++i) {
    const size_t layer = i / static_cast<size_t>(m.tiles.n_cuts);
    const int cut = static_cast<int>(i) % m.tiles.n_cuts;
    const int tile = m.tiles.find(TileKind::kAttn, static_cast<int32_t>(layer), cut);
    if (tile < 0) {
      continue;
    }
    auto& list = lists[static_cast<size_t>(m.placement.home[static_cast<size_t>(tile)])];
    if (list == nullptr) {
      list = std::make_shared<CommandList>();
    }
    const KvLayerSpec& spec = m.definition.program.kv_layers[layer];
    const KvFormat format{memory.options.k_type, memory.options.v_type, spec.k_dim, spec.v_dim};
    const IndexRange heads = m.tiles.attn_cuts[layer].groups(cut);
    const auto n_held = static_cast<uint64_t>(length - rows.kv[layer].first);
    const std::span<const int32_t> pages = memory.kv.pages(m.kv_classes.of_layer[layer], seq);
    Rows k{.page_begin = memory.kv_bases[i],
           .page_bytes = static_cast<uint64_t>(kv_page_bytes(format, heads.size())),
           .row_bytes = row_bytes(format.k_type, static_cast<uint64_t>(format.k_dim)),
           .n_heads = static_cast<uint64_t>(heads.size()),
           .first = rows.kv[layer].first,
           .length = length};
    Rows v = k;
    v.page_begin += kv_k_bytes(format, heads.size());
    v.row_bytes = row_bytes(format.v_type, static_cast<uint64_t>(format.v_dim));
    const auto first_head = static_cast<uint64_t>(heads.begin);
    k.state = bytes + rows.kv[layer].k_offset + first_head * n_held * k.row_bytes;
    v.state = bytes + rows.kv[layer].v_offset + first_head * n_held * v.row_bytes;
    add_copies(k, pages, restoring, *list);
    add_copies(v, pages, restoring, *list);
  }
}

Status Context::save_state(int32_t seq, const std::string& path) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::create(path));
  ASSIGN_OR_RETURN(const uint64_t n_bytes, state_bytes(seq));
  std::vector<std::byte> bytes;
  try {
    bytes.resize(n_bytes);
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kOutOfMemory, fmt::format("no memory is left for the {} bytes of '{}'", n_bytes, path)};
  }
  TRY(get_state(seq, bytes));
  TRY(file.append(bytes));
  return file.commit();
}

Status Context::load_state(int32_t seq, const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::open(path));
  std::vector<std::byte> bytes;
  try {
    bytes.resize(file.size());
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kOutOfMemory, fmt::format("no memory is left for the {} bytes of '{}'", file.size(), path)};
  }
  TRY(file.read_at(0, bytes));
  return set_state(seq, bytes).with_context(path);
}

}  // namespace tessera
