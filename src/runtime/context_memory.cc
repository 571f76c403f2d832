#include "runtime/context_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "kernels/ops/kv_layout.h"

namespace tessera {

ContextMemory::ContextMemory(ModelState& model, const ContextOptions& options, const ContextSizes& sizes,
                             const SequenceMemory& book)
    : model_(model), options_(options), sizes_(sizes), book_(book), kv_(model), rec_(model) {}

ContextMemory::~ContextMemory() {
  std::erase(model_.contexts, this);
}

Status ContextMemory::open() {
  ASSIGN_OR_RETURN(const std::vector<DeviceNeed> needs, memory_needs(model_, options_, sizes_));
  TRY(check_fit(model_, needs));
  TRY(kv_.open(kv_tile_bytes(model_, options_, sizes_), "KV cache"));
  TRY(open_scratch(needs));
  TRY(rec_.open(options_.n_seq_max, sizes_.n_snapshots));
  host_layout_ = host_input_layout(sizes_.shape, model_.definition.info.n_embd, model_.kv_classes.windows.size());
  for (HostBlocks& host : hosts_) {
    host.inputs = std::make_unique_for_overwrite<std::byte[]>(host_layout_.bytes);
    host.logits = std::make_unique_for_overwrite<float[]>(
        static_cast<size_t>(sizes_.shape.n_outputs * model_.definition.info.n_vocab));
    if (sizes_.shape.embeddings) {
      host.embeddings = std::make_unique_for_overwrite<float[]>(
          static_cast<size_t>(sizes_.shape.n_tokens * model_.definition.info.n_embd));
    }
  }
  ASSIGN_OR_RETURN(lowered_, lower_with(model_.placement, kv_.bases(), rec_.bases()));
  count_stats();
  model_.contexts.push_back(this);
  return {};
}

// Address space for what another placement may need. How much that is only lowering for it can tell; buffers of all
// devices together are about what one device has when it does everything, so several times that is never reached.
Status ContextMemory::open_scratch(const std::vector<DeviceNeed>& needs) {
  constexpr uint64_t kTimes = 8;
  constexpr uint64_t kLeast = 64 << 20;
  uint64_t all = 0;
  for (const DeviceNeed& need : needs) {
    all += need.scratch_bytes;
  }
  for (size_t d = 0; d < needs.size(); ++d) {
    const uint64_t reserved = needs.size() == 1 ? std::max<uint64_t>(all, 1) : kTimes * all + kLeast;
    ASSIGN_OR_RETURN(auto range, model_.devices[d].reserve(reserved, "scratch"));
    TRY(range->resize(needs[d].scratch_bytes));
    scratch_ranges_.push_back(std::move(range));
  }
  return {};
}

Result<std::shared_ptr<const Lowered>> ContextMemory::lower_with(const Placement& placement,
                                                                 const std::vector<std::byte*>& kv_bases,
                                                                 const std::vector<std::byte*>& rec_bases) const {
  LowerInput input = model_.lower_input(placement);
  for (size_t d = 0; d < input.devices.size(); ++d) {
    input.devices[d].scratch = scratch_ranges_[d]->base();
  }
  input.k_type = options_.k_type;
  input.v_type = options_.v_type;
  input.kv_bases = kv_bases;
  input.rec_bases = rec_bases;
  input.shape = sizes_.shape;
  for (size_t p = 0; p < hosts_.size(); ++p) {
    input.host_inputs[p] = hosts_[p].inputs.get();
    input.host_logits[p] = hosts_[p].logits.get();
    input.host_embeddings[p] = hosts_[p].embeddings.get();
  }
  ASSIGN_OR_RETURN(Lowered lowered, lower(input));
  return std::make_shared<const Lowered>(std::move(lowered));
}

void ContextMemory::count_stats() {
  stats_.n_tiles = static_cast<int64_t>(model_.tiles.tiles.size());
  stats_.n_steps = lowered_->stats.n_kernels;
  stats_.n_reduces = lowered_->stats.n_reduces;
  stats_.n_copies = lowered_->stats.n_copies;
  stats_.copy_bytes_per_token = lowered_->stats.copy_floats_per_token * static_cast<int64_t>(sizeof(float));
  stats_.n_segments = static_cast<int64_t>(lowered_->segments.size());
}

void ContextMemory::copy_pages(std::span<const KvPageCopy> copies) {
  DeviceLists lists(model_.devices.size());
  const auto n_cuts = static_cast<size_t>(model_.tiles.n_cuts);
  for (const KvPageCopy& copy : copies) {
    for (size_t i = 0; i < kv_.bases().size(); ++i) {
      std::byte* const base = kv_.bases()[i];
      if (base == nullptr || model_.kv_classes.of_layer[i / n_cuts] != copy.klass) {
        continue;
      }
      const uint64_t page = kv_page_bytes_of(i);
      auto& list = lists[home_of_state(model_, i)];
      if (list == nullptr) {
        list = std::make_shared<CommandList>();
      }
      Command command;
      command.copy = {base + page * static_cast<uint64_t>(copy.to),
                      base + page * static_cast<uint64_t>(copy.from),
                      page,
                      page,
                      page,
                      1,
                      RowCount::kFixed};
      command.name = "copy page";
      list->push_back(std::move(command));
    }
  }
  model_.submit(lists);
}

Result<ContextMemory::Next> ContextMemory::lower_for(const Placement& placement) const {
  Next next;
  next.kv = kv_.layout_for(placement);
  next.rec = rec_.ranges().layout_for(placement);
  next.kv_bases = kv_.bases_for(next.kv);
  next.rec_bases = rec_.ranges().bases_for(next.rec);
  ASSIGN_OR_RETURN(next.lowered, lower_with(placement, next.kv_bases, next.rec_bases));
  return next;
}

void ContextMemory::add_changes(const Next& next, std::vector<RangeChange>& changes) const {
  const auto add = [&](const std::vector<std::unique_ptr<MemoryRange>>& ranges, const std::vector<uint64_t>& after) {
    for (size_t d = 0; d < ranges.size(); ++d) {
      changes.push_back({d, ranges[d].get(), ranges[d]->committed_bytes(), after[d]});
    }
  };
  add(kv_.ranges(), next.kv.region_bytes);
  add(rec_.ranges().ranges(), next.rec.region_bytes);
  add(scratch_ranges_, next.lowered->scratch_bytes);
}

void ContextMemory::add_extents(const Next& next, PlannedExtents& planned) const {
  const KvCache& kv = book_.kv();
  std::vector<std::vector<bool>> pages;  // by class: whether a page is in use
  for (size_t c = 0; c < kv.config().classes.size(); ++c) {
    std::vector<bool>& used = pages.emplace_back(static_cast<size_t>(kv.config().classes[c].n_pages));
    for (size_t p = 0; p < used.size(); ++p) {
      used[p] = kv.page_refs(static_cast<int32_t>(c), static_cast<int32_t>(p)) > 0;
    }
  }
  const auto n_cuts = static_cast<size_t>(model_.tiles.n_cuts);
  add_state_extents(
      kv_, next.kv, pages,
      [&](size_t i) { return std::pair(model_.kv_classes.of_layer[i / n_cuts], kv_page_bytes_of(i)); }, planned);

  std::vector<std::vector<bool>> slots(1);
  for (int32_t s = 0; s < options_.n_seq_max; ++s) {
    slots[0].push_back(book_.length(s) > 0);
  }
  add_state_extents(
      rec_.ranges(), next.rec, slots, [&](size_t i) { return std::pair(0, rec_.slot_bytes(i)); }, planned);
}

uint64_t ContextMemory::kv_page_bytes_of(size_t index) const {
  const auto n_cuts = static_cast<size_t>(model_.tiles.n_cuts);
  const size_t layer = index / n_cuts;
  const KvLayerSpec& spec = model_.definition.program.kv_layers[layer];
  const KvFormat format{options_.k_type, options_.v_type, spec.k_dim, spec.v_dim};
  return static_cast<uint64_t>(
      kv_page_bytes(format, model_.tiles.attn_cuts[layer].groups(static_cast<int>(index % n_cuts)).size()));
}

// Runs of used pieces of every state that moves, in whole grid units. piece_of(index): which list of `used` counts
// there, and the bytes of one piece.
void ContextMemory::add_state_extents(const StateRanges& state, const Layout& next,
                                      const std::vector<std::vector<bool>>& used,
                                      const std::function<std::pair<int32_t, uint64_t>(size_t)>& piece_of,
                                      PlannedExtents& planned) const {
  if (state.ranges().empty()) {
    return;
  }
  const auto first_pool = static_cast<int32_t>(planned.pools.size());
  uint64_t unit = 0;
  for (size_t d = 0; d < state.ranges().size(); ++d) {
    planned.pools.push_back({d, state.ranges()[d]->base()});
    unit = std::max(unit, model_.devices[d].info().unit_bytes);
  }
  const Layout& now = state.layout();
  for (size_t i = 0; i < now.home.size(); ++i) {
    if (now.home[i] < 0 || (now.home[i] == next.home[i] && now.offset[i] == next.offset[i])) {
      continue;
    }
    const auto [list, piece] = piece_of(i);
    const std::vector<bool>& pieces = used[static_cast<size_t>(list)];
    std::vector<Run> runs;
    for (size_t p = 0; p < pieces.size(); ++p) {
      if (pieces[p]) {
        const uint64_t begin = p * piece / unit * unit;
        const uint64_t end = std::min(round_up((p + 1) * piece, unit), state.tile_bytes()[i]);
        if (!runs.empty() && begin <= runs.back().end) {
          runs.back().end = end;
        } else {
          runs.push_back({begin, end});
        }
      }
    }
    for (const Run& run : runs) {
      planned.extents.push_back({run.end - run.begin,
                                 {first_pool + now.home[i], now.offset[i] + run.begin},
                                 {first_pool + next.home[i], next.offset[i] + run.begin}});
    }
  }
}

void ContextMemory::take(Next next) noexcept {
  kv_.take(std::move(next.kv), std::move(next.kv_bases));
  rec_.ranges().take(std::move(next.rec), std::move(next.rec_bases));
  lowered_ = std::move(next.lowered);
  count_stats();
}

}  // namespace tessera
