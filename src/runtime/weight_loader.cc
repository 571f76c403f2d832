#include "runtime/weight_loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/checked.h"
#include "base/threads.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

// Source bytes that one thread packs before it looks for more work.
constexpr uint64_t kChunkBytes = 512 << 10;

/// Some row groups of one panel.
struct PackTask {
  const WeightLayout* layout;
  const TensorSpec* spec;
  const TilePanel* panel;
  int64_t row_begin;  // rows of the panel, a multiple of the layout's row group
  int64_t row_end;
  std::byte* dst;
  uint64_t source_bytes;
};

class Loader {
 public:
  explicit Loader(ModelState& model) : model_(model) {}

  void collect() {
    for (size_t t = 0; t < model_.tiles.tiles.size(); ++t) {
      const Tile& tile = model_.tiles.tiles[t];
      DeviceWeights& weights = model_.weights[static_cast<size_t>(model_.placement.home[t])];
      std::byte* base = weights.range->base() + weights.tiles_offset + model_.placement.offset[t];
      for (size_t p = 0; p < tile.panels.size(); ++p) {
        add_panel(tile.panels[p], weights, base + weights.tile_layouts[t].panel_offsets[p]);
      }
    }
  }

  void write_replicas() {
    for (size_t d = 0; d < model_.weights.size(); ++d) {
      if (model_.weights[d].bytes == 0) {
        continue;  // a device without tiles runs nothing
      }
      for (size_t t = 0; t < model_.definition.table.tensors.size(); ++t) {
        const TensorSpec& spec = model_.definition.table.tensors[t];
        if (spec.tile != TileKind::kReplica) {
          continue;
        }
        std::byte* bytes = model_.weights[d].range->base() + model_.replicas.offsets[t];
        auto* dst = reinterpret_cast<float*>(bytes);  // [columns] f32
        if (spec.source < 0) {
          std::ranges::copy(spec.constant, dst);
        } else {
          dequantize_row(spec.dtype, source(spec), dst, spec.columns);
        }
      }
    }
  }

  Status pack(int n_threads, const LoadProgress& progress) {
    std::vector<std::thread> helpers;
    for (int i = 1; i < n_threads; ++i) {
      // Fewer threads take longer and pack the same bytes.
      Result<std::thread> helper = start_thread("tessera-load", [this] { work({}); });
      if (!helper.ok()) {
        break;
      }
      helpers.push_back(std::move(helper).value());
    }
    report(progress);
    work(progress);
    for (std::thread& helper : helpers) {
      helper.join();
    }
    report(progress);
    return cancelled_ ? Status(ErrorCode::kCancelled, "loading was stopped") : Status();
  }

 private:
  const std::byte* source(const TensorSpec& spec) const {
    return model_.file->data(model_.file->tensors()[static_cast<size_t>(spec.source)]).data();
  }

  void add_panel(const TilePanel& panel, const DeviceWeights& weights, std::byte* dst) {
    const TensorSpec& spec = model_.definition.table.tensors[static_cast<size_t>(panel.tensor)];
    const WeightLayout* layout = weights.kernels->layout(spec.dtype);
    const uint64_t row = row_bytes(spec.dtype, static_cast<uint64_t>(panel.columns.size()));
    const auto group = static_cast<uint64_t>(layout->row_group);
    const auto step =
        static_cast<int64_t>(round_up(std::max<uint64_t>(kChunkBytes / std::max<uint64_t>(row, 1), 1), group));
    for (int64_t begin = 0; begin < panel.n_rows; begin += step) {
      const int64_t end = std::min(begin + step, panel.n_rows);
      std::byte* at = dst + layout->packed_bytes(spec.dtype, begin, panel.columns.size());
      tasks_.push_back({layout, &spec, &panel, begin, end, at, row * static_cast<uint64_t>(end - begin)});
      total_bytes_ += tasks_.back().source_bytes;
    }
  }

  void work(const LoadProgress& progress) {
    std::vector<const std::byte*> rows;
    for (size_t i = next_++; i < tasks_.size() && !cancelled_; i = next_++) {
      const PackTask& task = tasks_[i];
      gather_rows(task, rows);
      task.layout->pack(task.spec->dtype, task.panel->columns.size(), rows, task.dst);
      done_bytes_ += task.source_bytes;
      report(progress);
    }
  }

  void report(const LoadProgress& progress) {
    const double fraction = static_cast<double>(done_bytes_) / static_cast<double>(std::max<uint64_t>(total_bytes_, 1));
    if (progress && !cancelled_ && !progress(fraction)) {
      cancelled_ = true;
    }
  }

  // First wanted byte of each of the task's rows.
  void gather_rows(const PackTask& task, std::vector<const std::byte*>& rows) const {
    const TensorSpec& spec = *task.spec;
    const uint64_t full_row = row_bytes(spec.dtype, static_cast<uint64_t>(spec.columns));
    const std::byte* base = source(spec) + row_bytes(spec.dtype, static_cast<uint64_t>(task.panel->columns.begin));
    rows.clear();
    int64_t first = 0;  // panel row at which the current range begins
    for (const IndexRange& range : task.panel->rows) {
      const int64_t begin = std::max(task.row_begin, first);
      const int64_t end = std::min(task.row_end, first + range.size());
      for (int64_t r = begin; r < end; ++r) {
        rows.push_back(base + full_row * static_cast<uint64_t>(range.begin + r - first));
      }
      first += range.size();
    }
  }

  ModelState& model_;
  std::vector<PackTask> tasks_;
  uint64_t total_bytes_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> done_bytes_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace

Status load_weights(ModelState& model, int n_threads, const LoadProgress& progress) {
  Loader loader(model);
  loader.write_replicas();
  loader.collect();
  TRY(loader.pack(std::max(n_threads, 1), progress));
  // The file's pages may go: what is needed again (embedding rows) comes back from the page cache.
  for (const TensorInfo& tensor : model.file->tensors()) {
    model.file->advise(tensor, Access::kDontNeed);
  }
  return model.file->check_unchanged();
}

}  // namespace tessera
