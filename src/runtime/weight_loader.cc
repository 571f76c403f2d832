#include "runtime/weight_loader.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "base/checked.h"
#include "base/threads.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

// Source bytes that one thread reads and packs before it looks for more work. With what they are packed to, they fit
// into a core's second-level cache of 1 MiB or more.
constexpr uint64_t kChunkBytes = 512 << 10;
// How far reading is announced ahead: what a fast disk (3 GB/s) delivers in 10 ms, longer than any task takes.
constexpr uint64_t kReadAheadBytes = 32 << 20;

/// Some row groups of one panel.
struct PackTask {
  const WeightLayout* layout;
  const TensorSpec* spec;
  const TilePanel* panel;
  const TensorInfo* source;
  int64_t first_row;  // of the source, in rows of the spec's columns: 0; of a tensor of experts, this tile's
  int64_t row_begin;  // rows of the panel, a multiple of the layout's row group
  int64_t row_end;
  std::byte* dst;
  uint64_t source_bytes;
  uint64_t before_bytes;  // source bytes of all tasks before this one
};

/// What one thread needs, allocated before it starts: a thread that runs out of memory could tell nobody.
struct Worker {
  std::unique_ptr<std::byte[]> bytes;  // of the task's rows, one after the other
  std::vector<const std::byte*> rows;
};

/// Threads that are joined when they go out of scope.
struct Helpers {
  std::vector<std::thread> threads;
  ~Helpers() {
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
};

class Loader {
 public:
  explicit Loader(ModelState& model) : model_(model), file_(*model.file) {}

  void collect() {
    for (size_t t = 0; t < model_.tiles.tiles.size(); ++t) {
      const Tile& tile = model_.tiles.tiles[t];
      DeviceWeights& weights = model_.weights[static_cast<size_t>(model_.placement.home[t])];
      std::byte* base = weights.range->base() + weights.tiles_offset + model_.placement.offset[t];
      for (size_t p = 0; p < tile.panels.size(); ++p) {
        add_panel(tile, tile.panels[p], weights, base + weights.tile_layouts[t].panel_offsets[p]);
      }
    }
  }

  Status write_replicas() {
    std::vector<std::byte> bytes;
    for (size_t t = 0; t < model_.definition.table.tensors.size(); ++t) {
      const TensorSpec& spec = model_.definition.table.tensors[t];
      if (spec.tile != TileKind::kReplica) {
        continue;
      }
      if (spec.source >= 0) {
        bytes.resize(source(spec).n_bytes);
        TRY(file_.read(source(spec), 0, bytes));
      }
      for (const DeviceWeights& weights : model_.weights) {
        if (weights.bytes == 0) {
          continue;  // a device without tiles runs nothing
        }
        auto* dst =
            reinterpret_cast<float*>(weights.range->base() + model_.replicas.offsets[t]);  // [rows, columns] f32
        if (spec.source < 0) {
          std::ranges::copy(spec.constant, dst);
        } else {
          dequantize_row(spec.dtype, bytes.data(), dst, spec.rows * spec.columns);
        }
      }
    }
    return {};
  }

  Status pack(int n_threads, const LoadProgress& progress) {
    std::vector<Worker> workers(static_cast<size_t>(n_threads));
    for (Worker& worker : workers) {
      worker.bytes = std::make_unique_for_overwrite<std::byte[]>(most_bytes_);
      worker.rows.reserve(most_rows_);
    }
    {
      Helpers helpers;
      helpers.threads.reserve(workers.size());
      for (size_t i = 1; i < workers.size(); ++i) {
        // Fewer threads take longer and pack the same bytes.
        Result<std::thread> helper = start_thread("tessera-load", [this, w = &workers[i]] {
          run_on_cpus(model_.devices.cpus);
          work(*w, {});
        });
        if (!helper.ok()) {
          break;
        }
        helpers.threads.push_back(std::move(helper).value());
      }
      report(progress);
      const std::vector<int> callers_own = allowed_cpus();
      run_on_cpus(model_.devices.cpus);
      work(workers[0], progress);
      run_on_cpus(callers_own);
    }
    report(progress);
    return failure_;
  }

 private:
  const TensorInfo& source(const TensorSpec& spec) const { return file_.tensors()[static_cast<size_t>(spec.source)]; }

  void add_panel(const Tile& tile, const TilePanel& panel, const DeviceWeights& weights, std::byte* dst) {
    const TensorSpec& spec = model_.definition.table.tensors[static_cast<size_t>(panel.tensor)];
    const ExpertSource from =
        tile.kind == TileKind::kExpert ? spec.experts[static_cast<size_t>(tile.expert)] : ExpertSource{spec.source, 0};
    const TensorInfo* source = &file_.tensors()[static_cast<size_t>(from.source)];
    const WeightLayout* layout = weights.kernels->layout(spec.dtype);
    const uint64_t row = row_bytes(spec.dtype, static_cast<uint64_t>(panel.n_columns));
    const auto group = static_cast<uint64_t>(layout->row_group);
    const auto step =
        static_cast<int64_t>(round_up(std::max<uint64_t>(kChunkBytes / std::max<uint64_t>(row, 1), 1), group));
    for (int64_t begin = 0; begin < panel.n_rows; begin += step) {
      const int64_t end = std::min(begin + step, panel.n_rows);
      std::byte* at = dst + layout->packed_bytes(spec.dtype, begin, panel.n_columns);
      const auto n_rows = static_cast<uint64_t>(end - begin);
      tasks_.push_back({layout, &spec, &panel, source, from.row, begin, end, at, row * n_rows, total_bytes_});
      total_bytes_ += tasks_.back().source_bytes;
      most_bytes_ = std::max(most_bytes_, tasks_.back().source_bytes);
      most_rows_ = std::max(most_rows_, n_rows);
    }
  }

  void work(Worker& worker, const LoadProgress& progress) {
    for (size_t i = next_++; i < tasks_.size() && !stopped_; i = next_++) {
      const PackTask& task = tasks_[i];
      read_ahead(i);
      const Status status = read_rows(task, worker);
      if (!status.ok()) {
        return stop(status);
      }
      task.layout->pack(task.spec->dtype, task.panel->n_columns, worker.rows, task.dst);
      done_bytes_ += task.source_bytes;
      report(progress);
    }
  }

  void report(const LoadProgress& progress) {
    const double fraction = static_cast<double>(done_bytes_) / static_cast<double>(std::max<uint64_t>(total_bytes_, 1));
    if (progress && !stopped_ && !progress(fraction)) {
      stop({ErrorCode::kCancelled, "loading was stopped"});
    }
  }

  // The first reason counts.
  void stop(Status why) {
    const std::lock_guard lock(failure_mutex_);
    if (failure_.ok()) {
      failure_ = std::move(why);
    }
    stopped_ = true;
  }

  // Announces the rows of the tasks that begin kReadAheadBytes after this one; each task's rows once.
  void read_ahead(size_t task) {
    const uint64_t until = tasks_[task].before_bytes + kReadAheadBytes;
    for (size_t i = announced_; i < tasks_.size() && tasks_[i].before_bytes < until; i = announced_) {
      if (!announced_.compare_exchange_strong(i, i + 1)) {
        continue;
      }
      const TensorInfo& info = *tasks_[i].source;
      const uint64_t full_row = full_row_bytes(tasks_[i]);
      (void)for_each_run(tasks_[i], [&](int64_t begin, int64_t end) {  // hints: never an error
        file_.will_need(info, full_row * static_cast<uint64_t>(begin), full_row * static_cast<uint64_t>(end - begin));
        return Status();
      });
    }
  }

  // Rows are as long as the table says: the file may have several of an expert, gate and up, in one of its own.
  static uint64_t full_row_bytes(const PackTask& task) {
    return row_bytes(task.source->dtype, static_cast<uint64_t>(task.spec->columns));
  }

  // Reads the task's rows, the wanted columns of each side by side, and points worker.rows at them.
  Status read_rows(const PackTask& task, Worker& worker) const {
    const TensorInfo& info = *task.source;
    const uint64_t full_row = full_row_bytes(task);
    const uint64_t wanted = row_bytes(info.dtype, static_cast<uint64_t>(task.panel->n_columns));
    std::byte* at = worker.bytes.get();
    worker.rows.clear();
    return for_each_run(task, [&](int64_t begin, int64_t end) -> Status {
      const auto n_rows = static_cast<uint64_t>(end - begin);
      const uint64_t offset = full_row * static_cast<uint64_t>(begin);
      for (uint64_t r = 0; r < n_rows; ++r) {
        worker.rows.push_back(at + wanted * r);
      }
      if (wanted == full_row) {
        TRY(file_.read(info, offset, {at, full_row * n_rows}));
        at += full_row * n_rows;
        return {};
      }
      for (uint64_t r = 0; r < n_rows; ++r) {
        for (const IndexRange& columns : task.panel->columns) {
          const uint64_t n_bytes = row_bytes(info.dtype, static_cast<uint64_t>(columns.size()));
          const uint64_t first = row_bytes(info.dtype, static_cast<uint64_t>(columns.begin));
          TRY(file_.read(info, offset + full_row * r + first, {at, n_bytes}));
          at += n_bytes;
        }
      }
      return {};
    });
  }

  // Calls visit(begin, end) for each run of consecutive rows of the source that the task packs.
  template <typename Visit>
  static Status for_each_run(const PackTask& task, Visit visit) {
    int64_t first = 0;  // panel row at which the current range begins
    for (const IndexRange& range : task.panel->rows) {
      const int64_t begin = std::max(task.row_begin, first);
      const int64_t end = std::min(task.row_end, first + range.size());
      if (begin < end) {
        const int64_t shift = task.first_row + range.begin - first;
        TRY(visit(shift + begin, shift + end));
      }
      first += range.size();
    }
    return {};
  }

  ModelState& model_;
  const GgufFile& file_;
  std::vector<PackTask> tasks_;
  uint64_t total_bytes_ = 0;
  uint64_t most_bytes_ = 0;  // of any task
  uint64_t most_rows_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> announced_{0};  // tasks whose rows were announced
  std::atomic<uint64_t> done_bytes_{0};
  std::atomic<bool> stopped_{false};
  std::mutex failure_mutex_;
  Status failure_;
};

}  // namespace

Status load_weights(ModelState& model, int n_threads, const LoadProgress& progress) {
  Loader loader(model);
  TRY(loader.write_replicas());
  loader.collect();
  TRY(loader.pack(std::max(n_threads, 1), progress));
  return model.file->check_unchanged();
}

}  // namespace tessera
