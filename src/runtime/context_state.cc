#include "runtime/context_state.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <new>

#include "base/files.h"
#include "kernels/ops/kv_layout.h"
#include "runtime/fingerprint.h"
#include "runtime/memory_plan.h"

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

// Between a context's memory and the bytes of a state, one way or the other.
class StateCopies {
 public:
  StateCopies(const StateMemory& memory, bool restoring, DeviceLists& lists)
      : memory_(memory), m_(memory.model), restoring_(restoring), lists_(lists) {
    lists.resize(m_.devices.size());
  }

  // Keys and values of all layers and cuts.
  void add_kv(const StateSequence& sequence, int32_t seq, std::byte* bytes) {
    for (size_t i = 0; i < memory_.kv_bases.size(); ++i) {
      if (memory_.kv_bases[i] == nullptr) {
        continue;
      }
      const size_t layer = i / static_cast<size_t>(m_.tiles.n_cuts);
      const KvLayerSpec& spec = m_.definition.program.kv_layers[layer];
      const KvFormat format{memory_.shape.k_type, memory_.shape.v_type, spec.k_dim, spec.v_dim};
      const IndexRange heads = m_.tiles.attn_cuts[layer].groups(static_cast<int>(i) % m_.tiles.n_cuts);
      const StateKv& kv = sequence.kv[layer];
      const auto length = static_cast<int64_t>(sequence.tokens.size());
      const auto n_held = static_cast<uint64_t>(length - kv.first);
      const std::span<const int32_t> pages = memory_.book.kv().pages(m_.kv_classes.of_layer[layer], seq);
      Rows k{.page_begin = memory_.kv_bases[i],
             .page_bytes = static_cast<uint64_t>(kv_page_bytes(format, heads.size())),
             .row_bytes = row_bytes(format.k_type, static_cast<uint64_t>(format.k_dim)),
             .n_heads = static_cast<uint64_t>(heads.size()),
             .first = kv.first,
             .length = length};
      Rows v = k;
      v.page_begin += kv_k_bytes(format, heads.size());
      v.row_bytes = row_bytes(format.v_type, static_cast<uint64_t>(format.v_dim));
      const auto first_head = static_cast<uint64_t>(heads.begin);
      k.state = bytes + kv.k_offset + first_head * n_held * k.row_bytes;
      v.state = bytes + kv.v_offset + first_head * n_held * v.row_bytes;
      add_pages(k, pages, i);
      add_pages(v, pages, i);
    }
  }

  // One recurrent state, of all layers and cuts. base(i): where it lies for rec(layer, cut) number i.
  template <typename Base>
  void add_rec(const StateRec& rec, const Base& base, std::byte* bytes) {
    std::byte* at = bytes + rec.offset;
    for (const StateRecLayer& layer : memory_.shape.rec_layers) {
      const auto l = static_cast<size_t>(layer.layer);
      for (int cut = 0; cut < m_.tiles.n_cuts; ++cut) {
        const IndexRange groups = m_.tiles.attn_cuts[l].groups(cut);
        if (!groups.empty()) {
          const size_t i = l * static_cast<size_t>(m_.tiles.n_cuts) + static_cast<size_t>(cut);
          add_rec_panel(layer, {base(i), groups.size(), 0, groups.begin}, rec.length, at, i);
        }
      }
      at += layer.conv_bytes(rec.length) + static_cast<uint64_t>(layer.n_value_heads) * layer.matrix_bytes();
    }
  }

 private:
  // `rows` pieces of `width` bytes each.
  void add(size_t index, std::byte* device, uint64_t device_pitch, std::byte* state, uint64_t state_pitch,
           uint64_t width, uint64_t rows) {
    auto& list = lists_[home_of_state(m_, index)];
    if (list == nullptr) {
      list = std::make_shared<CommandList>();
    }
    Command command;
    command.copy = {.dst = restoring_ ? device : state,
                    .src = restoring_ ? state : device,
                    .dst_pitch = restoring_ ? device_pitch : state_pitch,
                    .src_pitch = restoring_ ? state_pitch : device_pitch,
                    .width = width,
                    .rows = rows,
                    .count = RowCount::kFixed};
    command.name = restoring_ ? "restore state" : "save state";
    list->push_back(std::move(command));
  }

  // One copy per page: a rectangle of heads by positions.
  void add_pages(const Rows& rows, std::span<const int32_t> pages, size_t index) {
    const uint64_t state_pitch = static_cast<uint64_t>(rows.length - rows.first) * rows.row_bytes;
    for (int64_t position = rows.first; position < rows.length; position += kPageTokens) {
      const auto page = static_cast<uint64_t>(pages[static_cast<size_t>(position / kPageTokens)]);
      std::byte* const in_state = rows.state + static_cast<uint64_t>(position - rows.first) * rows.row_bytes;
      const auto n_tokens = static_cast<uint64_t>(std::min(kPageTokens, rows.length - position));
      add(index, rows.page_begin + page * rows.page_bytes, kPageTokens * rows.row_bytes, in_state, state_pitch,
          n_tokens * rows.row_bytes, rows.n_heads);
    }
  }

  // state: where the layer's state begins.
  void add_rec_panel(const StateRecLayer& layer, const RecPanel& panel, int64_t length, std::byte* state,
                     size_t index) {
    const RecFormat format = rec_format(m_.definition.program.rec_layers[static_cast<size_t>(layer.layer)]);
    const auto floats = [](int64_t n) { return static_cast<uint64_t>(n) * sizeof(float); };
    for (int64_t i = 0; i < rec_n_segments(format); ++i) {
      const RecSegment segment = rec_segment(format, panel, i);
      add(index, panel.base + floats(segment.column), floats(panel.n_groups * rec_group_channels(format)),
          state + floats(segment.channel), floats(layer.channels()), floats(segment.size),
          static_cast<uint64_t>(layer.conv_rows(length)));
    }
    std::byte* const matrices = panel.base + rec_conv_bytes(format, panel.n_groups);
    state += layer.conv_bytes(length);
    const uint64_t matrix = layer.matrix_bytes();
    for (int64_t h = 0; h < panel.n_groups * format.n_rep; ++h) {
      const auto head = static_cast<uint64_t>(rec_layer_head(format, panel, h));
      add(index, matrices + static_cast<uint64_t>(h) * matrix, matrix, state + head * matrix, matrix, matrix, 1);
    }
  }

  const StateMemory& memory_;
  const ModelState& m_;
  bool restoring_;
  DeviceLists& lists_;
};

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
  const std::vector<RecLayerSpec>& rec_layers = model.definition.program.rec_layers;
  for (size_t l = 0; l < rec_layers.size(); ++l) {
    const RecLayerSpec& layer = rec_layers[l];
    if (layer.n_key_heads > 0) {
      shape.rec_layers.push_back({static_cast<int64_t>(l), layer.n_key_heads, layer.n_key_heads * layer.n_rep,
                                  layer.k_dim, layer.v_dim, layer.n_taps});
    }
  }
  return shape;
}

StateContent content_of(const StateShape& shape, const SequenceMemory& memory, const KvClasses& classes,
                        std::span<const std::vector<int32_t>> tokens, int32_t seq, int64_t n_logits) {
  StateContent content;
  content.whole = seq == kAllSequences;
  content.n_logits = content.whole ? n_logits : 0;
  const KvCache& kv = memory.kv();
  for (int32_t s = 0; s < kv.config().n_seq_max; ++s) {
    if (content.whole ? kv.length(s) == 0 : s != seq) {
      continue;
    }
    StateSequence sequence;
    sequence.seq = content.whole ? s : 0;
    sequence.tokens = tokens[static_cast<size_t>(s)];
    for (const int32_t klass : classes.of_layer) {
      sequence.kv.push_back({klass < 0 ? 0 : kv.first_position(klass, s), 0, 0});
    }
    for (const RecSnapshot& snapshot : memory.snapshots(s)) {
      sequence.snapshots.push_back({snapshot.position, 0});
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
      if (classes.of_layer[l] < 0) {
        continue;
      }
      int64_t& of_class = first[static_cast<size_t>(classes.of_layer[l])];
      if (of_class >= 0 && of_class != sequence.kv[l].first) {
        return Status(ErrorCode::kInvalidData,
                      fmt::format("the state is damaged: layer {} holds sequence {} from position {} on, a layer of "
                                  "the same window from {} on",
                                  l, sequence.seq, sequence.kv[l].first, of_class));
      }
      of_class = sequence.kv[l].first;
    }
    std::vector<int64_t> snapshots;
    for (const StateRec& snapshot : sequence.snapshots) {
      snapshots.push_back(snapshot.length);
    }
    TRY(book.restore(content.whole ? sequence.seq : seq, static_cast<int64_t>(sequence.tokens.size()), first,
                     snapshots));
  }
  return book;
}

void add_state_copies(const StateMemory& memory, const StateSequence& sequence, int32_t seq, std::byte* bytes,
                      bool restoring, DeviceLists& lists) {
  StateCopies copies(memory, restoring, lists);
  copies.add_kv(sequence, seq, bytes);
  if (memory.shape.rec_layers.empty() || sequence.tokens.empty()) {
    return;
  }
  for (const RecSnapshot& held : memory.book.snapshots(seq)) {
    const auto snapshot = std::ranges::find(sequence.snapshots, held.position, &StateRec::length);
    copies.add_rec(*snapshot, [&](size_t i) { return memory.rec.snapshot(i, held.place); }, bytes);
  }
  copies.add_rec(sequence.rec, [&](size_t i) { return memory.rec.slot(i, seq); }, bytes);
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
  // A file that is something else may be larger than memory.
  std::array<std::byte, kStateHeaderBytes> head{};
  const std::span<std::byte> begin = std::span(head).first(std::min<uint64_t>(head.size(), file.size()));
  TRY(file.read_at(0, begin));
  TRY(check_state_header(begin, file.size()).with_context(path));
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
