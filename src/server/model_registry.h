#pragma once
// The models that a server may be asked for: which are loaded, which wait for it, and which go to make room.
//
// A model is loaded when a request names it, on the registry's own thread, one at a time. What it needs of each device
// is counted before anything is read; idle models go, the one that was used longest ago first, until it fits the
// budgets; who need not go after all stays. A model somebody uses never goes: whoever has it holds a Lease, and so long
// it stays. A load that fails changes nothing for the others that are loaded, and is tried again when next asked for.
//
// Any thread may call anything, but for stop(). Nothing here blocks its caller.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace tessera {

struct ServedModel;

/// What a model takes of one device. Devices of one name are one device, whichever model names it.
struct DeviceClaim {
  std::string device;
  uint64_t bytes = 0;
  uint64_t budget_bytes = 0;  // of the device, for all models together
};

/// How a model is to be placed that is not loaded yet. What is left out stays as the model's own settings say.
struct LoadPlacement {
  std::optional<std::string> split_mode = {};
  std::optional<std::vector<double>> tensor_split = {};  // by device; empty: even
  [[nodiscard]] bool says_nothing() const { return !split_mode && !tensor_split; }
  friend bool operator==(const LoadPlacement&, const LoadPlacement&) = default;
};

/// Where models come from. Called from the registry's thread alone. `model`: index into the registry's names.
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  /// What the model will take, without loading it. Errors: why it cannot be loaded; kDoesNotFit: not even alone;
  /// kInvalidArgument: it cannot be placed so.
  virtual Result<std::vector<DeviceClaim>> count(size_t model, const LoadPlacement& placement) = 0;
  /// Ends early, with kCancelled, once `cancelled` is true.
  virtual Result<std::shared_ptr<ServedModel>> load(size_t model, const LoadPlacement& placement,
                                                    const std::atomic<bool>& cancelled) = 0;
  /// What a loaded model takes now: a switch of its placement changes that. Must be quick, and not call the registry.
  virtual std::vector<DeviceClaim> present(size_t model, const ServedModel& served) = 0;
};

enum class ModelPhase { kUnloaded, kLoading, kLoaded, kFailed };

struct ModelView {
  std::string name;
  ModelPhase phase = ModelPhase::kUnloaded;  // kLoading: also while it waits for its turn
  Status failure;                            // kFailed: of the last load
};

struct ModelRegistryOptions {
  int64_t models_max = 0;  // loaded at once; 0: as many as fit
  /// How long a load waits for models in use to make room, before it fails.
  std::chrono::milliseconds wait{60'000};
};

class ModelRegistry {
 public:
  /// The model, which stays loaded as long as a copy of this lives.
  using Lease = std::shared_ptr<ServedModel>;
  using Answer = std::function<void(Result<Lease>)>;

  /// REQUIRES: names are not empty, and each is there once. Errors: kOutOfMemory (no thread).
  static Result<std::shared_ptr<ModelRegistry>> start(std::vector<std::string> names,
                                                      std::unique_ptr<ModelSource> source,
                                                      const ModelRegistryOptions& options = {}, Log log = {});
  /// As stop(); then lets all models go. REQUIRES: nobody uses them any more.
  ~ModelRegistry();
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  [[nodiscard]] size_t size() const;
  [[nodiscard]] std::vector<ModelView> list() const;
  /// Errors: kNotFound, which lists the names.
  [[nodiscard]] Result<size_t> find(std::string_view name) const;

  /// Calls `answer` once with the model: before this returns if it is loaded, else from the registry's thread when it
  /// is, or with what failed: what the source said; kCancelled: nothing could go to make room (with the numbers), it
  /// was unloaded meanwhile, stop() came, or `gone` (may be empty) was true before the load began. True: it waits.
  /// placement: of the load, if it has yet to begin; of several that wait the first who names one decides, and what
  /// then fails is told to those who asked for that, while the others wait on.
  bool acquire(size_t model, std::function<bool()> gone, Answer answer, LoadPlacement placement = {});
  /// The model if it can be had at once, else null.
  [[nodiscard]] Lease take(size_t model);
  /// Some `gone` may have changed.
  void wake();
  /// The model if it is loaded, else null. Looking at it is no use of it.
  [[nodiscard]] Lease peek(size_t model) const;

  /// Loads without a request. Errors: kInvalidArgument: it is loaded, or about to be.
  Status load(size_t model);
  /// Lets it go as soon as nobody uses it (requests that come meanwhile wait, and load it again), or stops its load,
  /// of which those who wait for it hear. `done` is called once it is gone, from the registry's thread. Errors, after
  /// which done is not called: kInvalidArgument: it is not loaded.
  Status unload(size_t model, std::function<void(Status)> done);

  /// Stops the load that runs, answers all who wait with kCancelled, and loads nothing any more. Models that are loaded
  /// stay. REQUIRES: not called from an answer.
  void stop();

 private:
  class Impl;
  explicit ModelRegistry(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // leases refer to it
};

/// "unloaded", "loading", "loaded", "failed".
std::string_view model_phase_name(ModelPhase phase);

}  // namespace tessera
