#pragma once
// The engine as front ends see it: a model with its devices and its placement. Contexts (context.h) decode with it.
//
// A Model is loaded once and shared by its contexts. Everything that touches devices runs on the model's one loop
// thread; functions here may be called from any thread and wait for it. The model file stays open for the model's life:
// rows of the embedding table are read from it as tokens need them, and it remains a valid copy of every weight (on
// disk: memory holds the packed tiles alone). A file that is cut short meanwhile makes decoding fail with kIo.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "runtime/sampler_options.h"
#include "tensor/dtype.h"
#include "tokenizer/template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

/// Sizes and types of one context's memory.
struct ContextOptions {
  int64_t n_ctx = 0;       // positions one sequence may have; 0: as many as the model was trained on
  int64_t n_batch = 2048;  // tokens one decode() may take
  int64_t n_ubatch = 512;  // tokens one micro-batch takes
  int32_t n_seq_max = 1;   // sequences
  // Positions that all sequences together may hold, at least n_ctx; 0: each n_ctx of its own, kAsOne: n_ctx together.
  int64_t n_kv_tokens = 0;
  static constexpr int64_t kAsOne = -1;
  DType k_type = DType::kF16;
  DType v_type = DType::kF16;
  // Recurrent state cannot be rewound; snapshots of it on the host are what a sequence may return to.
  int32_t n_snapshots = 32;            // at most, over all sequences
  uint64_t snapshot_bytes = 2U << 30;  // at most, for all of them
  bool embeddings = false;             // tokens may ask for their embeddings
};

/// Most of ModelOptions::n_expert_slots that the program and the C interface take: no layer has more experts.
inline constexpr int64_t kMaxExpertSlots = 1024;
/// Most of ContextOptions::n_ctx, and of n_batch.
inline constexpr int64_t kMaxContext = 1 << 24;
/// Most of ContextOptions::n_ubatch, and of n_seq_max.
inline constexpr int64_t kMaxUbatch = 1 << 16;
inline constexpr int64_t kMaxSequences = 4096;
/// Most of ContextOptions::n_snapshots.
inline constexpr int32_t kMaxSnapshots = 1'000'000;

class MemoryLedger;  // device/memory_budget.h
struct DeviceOptions;
struct DeviceSet;
/// Opens the devices that options ask for (device/registry.h), in their order.
using DeviceOpener = std::function<Result<DeviceSet>(const DeviceOptions& options)>;

struct ModelOptions {
  std::string path;
  std::vector<std::string> devices;             // of --device; empty: cpu:0
  std::vector<uint64_t> device_memory;          // of --device-memory: none, one for all, or one each
  std::shared_ptr<MemoryLedger> memory_ledger;  // of models that share CPU devices: what one uses, the others lack
  int n_threads = 0;                            // over all devices; 0: what the machine runs at once
  std::string cpu_mask;                         // CPUs for the threads, hexadecimal; empty: any. With cpu_range: both
  std::string cpu_range;                        // the same as LO-HI
  bool cpu_strict = false;                      // each thread on one of these CPUs
  std::string numa = "none";                    // none, distribute, isolate, numactl (device/cpu/cpu_affinity.h)
  std::string kernels = "auto";                 // auto, fast, scalar
  std::string cpu_isa = "auto";                 // auto, portable, avx2, avxvnni, avx512
  std::string split_mode = "layer";             // none, layer, tensor
  std::vector<double> tensor_split;             // shares of the devices; empty: even
  std::vector<std::string> override_tensor;     // REGEX=DEVICE: where tiles with such tensors live, whatever the split
  std::vector<std::string> override_kv;         // KEY=TYPE:VALUE: metadata in the place of the file's (gguf/override.h)
  int64_t n_cpu_moe = 0;                        // layers whose experts live on the last CPU device
  int64_t n_expert_slots = 0;  // above 0: experts sent elsewhere are streamed through so many slots of a device
  int n_cuts = 0;              // 0: from devices and shares. Equal bits need equal n_cuts and kernel class
  bool vocab_only = false;     // tokenizer and template only; no device is opened
  bool needs_text = false;     // refuse a file whose vocabulary cannot be used; vocab_only implies it
  ContextOptions context;      // what will be opened: the budget check counts it
  DeviceOpener open_devices;   // for tests, which decorate devices; empty: the registry opens `devices`
};

/// What people and tests ask about a loaded model. split_mode and placement_version are those of loading;
/// Model::placement() says what holds now.
struct ModelSummary {
  std::string architecture;
  std::string name;
  std::string kernel_class;
  std::string cpu_isa;
  std::string split_mode;
  int64_t n_layer = 0, n_embd = 0, n_head = 0, n_kv_head = 0, n_vocab = 0, n_ctx_train = 0;
  uint64_t file_bytes = 0;
  uint64_t n_params = 0;  // elements of all tensors in the file
  int n_cuts = 1;
  int64_t n_layers_attn_cut = 0;  // layers whose attention has two or more non-empty cuts
  int64_t n_layers_ffn_cut = 0;   // the same for the feed-forward part
  uint64_t placement_version = 0;
  int n_threads = 0;  // of the CPU devices together, never "as many as can run"
  double load_ms = 0;
};

/// Bytes of one device, read on the loop thread. KV, recurrent state and scratch: over all contexts.
struct DeviceUse {
  std::string name;
  int64_t n_tiles = 0;
  uint64_t weight_bytes = 0;  // tiles and replicas
  uint64_t kv_bytes = 0;
  uint64_t rec_bytes = 0;
  uint64_t scratch_bytes = 0;
  uint64_t budget_bytes = 0;
  uint64_t spare_bytes = 0;  // left at hand by the last switch for the next one; whatever grows gets them first

  [[nodiscard]] uint64_t used_bytes() const { return weight_bytes + kv_bytes + rec_bytes + scratch_bytes; }
};

/// A tile and its home.
struct TileHome {
  std::string_view kind;  // "attn", "ffn", "head", "expert"
  int32_t layer = -1;     // -1: the head
  int32_t cut = 0;
  int32_t expert = -1;  // of the layer; -1: no expert
  int32_t device = 0;   // index into device_use()
  uint64_t offset = 0;  // bytes from the start of the device's tile region
  uint64_t bytes = 0;
};

/// Where a model is to live. tensor_split: a share of the layers under layer, of every tensor under tensor; empty:
/// even. Shares are rounded to what layers and the model's cuts express. The general form is split_mode "custom" with a
/// home, an index into device_use(), for every tile in the order of tile_homes().
struct PlacementRequest {
  std::string split_mode;
  std::vector<double> tensor_split;
  std::vector<int32_t> homes = {};
};

/// How a switch of the placement runs.
struct TransitionOptions {
  bool wait = true;       // for its turn, while a decode or another call of the model runs; false: kBusy
  double deadline_s = 0;  // from the call on; 0: none. Then kDeadlineExceeded, undone, which takes time of its own;
                          // while holes are closed after the switch it leaves the holes (held_bytes), and is no error
  /// Per device, at most: staging, of which never more than eight pieces of 1 MiB are used; and, of what the switch
  /// gives back, what stays at hand for the next one (DeviceUse::spare_bytes). Less than a unit of the devices (64 KiB
  /// on CPUs) is kInvalidArgument.
  uint64_t staging_bytes = uint64_t{64} << 20;
  /// Per device, at most: what weights may take beyond both placements, so that they are copied while others decode,
  /// before the switch and once more after it (decisions/010-transitions.md). 0, or no waiting: none are. A switch for
  /// which there is no room beside them goes on without; decoding takes no memory, so it lacks none.
  uint64_t ahead_bytes = 0;
  /// Called with the part of the bytes that have arrived, 0 and 1 included, never less than before; false: kCancelled,
  /// undone. On the loop thread: it may call nothing of the model and its contexts (kBusy, where a status is returned),
  /// nor wait for a thread that does. While weights are copied ahead, before and after, on the thread that asked: there
  /// it may call anything, and another switch or a new context ends the copying. False after the switch, while holes
  /// are closed, leaves the holes (held_bytes) and is no error. May throw nothing.
  std::function<bool(double fraction)> progress = {};
};

struct TransitionReport {
  std::string from, to;  // split modes, "custom" for the general form
  uint64_t placement_version = 0;
  double reserve_ms = 0, move_ms = 0, commit_ms = 0, trim_ms = 0;
  double total_ms = 0;       // these four: from when the switch had its turn
  double ahead_ms = 0;       // before it, from the call on: weights were copied while others might decode
  double close_ms = 0;       // after it: holes were closed, the same
  double stall_ms = 0;       // that nobody could decode, over all turns: total_ms, planning ahead, closing holes
  uint64_t moved_bytes = 0;  // that changed their device
  uint64_t ahead_bytes = 0;  // of these, copied ahead
  uint64_t local_bytes = 0;  // copied within a device, also to close holes
  uint64_t held_bytes = 0;   // by holes left open, until the next switch or new context closes them
  int64_t n_moves = 0;
  std::vector<uint64_t> peak_bytes;  // by device: what it held while bytes moved, of all models and at hand
  std::vector<double> shares;        // by device: as rounded; none for the general form
};

/// 0 .. 1 while weights are read, both ends included. Called from the thread that loads; false stops loading with
/// kCancelled.
using LoadProgress = std::function<bool(double fraction)>;

class TokenTrie;   // grammar/token_trie.h
class ModelState;  // runtime's own view (model_state.h)

class Model {
 public:
  /// Opens the file, checks everything, counts what weights and options.context need on each device, and only then
  /// reads, places and packs the weights. Errors: those of the file; kInvalidArgument (names the flag); kDoesNotFit
  /// (per device: needed and budget; no weight was read); kOutOfMemory (the budget allows what the machine does not
  /// have); kUnsupported; kCancelled by progress.
  static Result<std::shared_ptr<Model>> load(const ModelOptions& options, const Log& log = {},
                                             const LoadProgress& progress = {});
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Ok when the file's vocabulary can be used; else why not. Such a model still decodes token ids.
  [[nodiscard]] const Status& text_status() const;
  /// REQUIRES: text_status().ok(), which ModelOptions::needs_text ensures.
  [[nodiscard]] const Tokenizer& tokenizer() const;
  /// The tokenizer's vocabulary for grammars, made at the first call (some 50 ms for 128k tokens) and kept. REQUIRES:
  /// as tokenizer().
  [[nodiscard]] std::shared_ptr<const TokenTrie> token_trie() const;
  /// The model file's own template; empty: it has none.
  [[nodiscard]] const std::string& chat_template_source() const;
  /// A template with this model's begin and end texts. Empty source: the file's own, or ChatML. Errors: text_status();
  /// those of the template.
  [[nodiscard]] Result<ChatTemplate> chat_template(const std::string& source = "") const;

  /// Sampling defaults with what the model file recommends (its keys general.sampling.*) in place of ours.
  [[nodiscard]] const SamplerOptions& recommended_sampling() const;

  [[nodiscard]] const ModelSummary& summary() const;
  [[nodiscard]] std::vector<DeviceUse> device_use() const;
  /// Every tile, in the order of the tile set: by layer attention, feed-forward and experts, each by cut; then the
  /// head. Empty when only the vocabulary was loaded.
  [[nodiscard]] std::vector<TileHome> tile_homes() const;

  /// Moves the weights, and the KV cache and recurrent state of every context, to where `request` wants them, between
  /// two calls of the contexts. All of them are afterwards as before: sequences, snapshots, the logits of the last
  /// decode (they lie on the host, where they stay), embeddings; their programs are lowered anew from what each context
  /// was opened with. What they compute from then on has the same bits as without the switch.
  /// Any thread, also while others decode: a call that runs ends first (from a callback of one it is kBusy), later ones
  /// wait for the switch (not for the copying ahead of it and after it). Tokenizer, templates, samplers and other
  /// models go on meanwhile. Of several switches that are asked for at once, the one that has its turn last decides.
  /// Memory: every range of a device (weights; each context's KV, recurrent state, scratch) holds the larger of before
  /// and after meanwhile, and the device its staging besides; with ahead_bytes up to that more, from the first copy to
  /// the return, or, where holes stay (held_bytes), to the next switch or new context. Afterwards a device may hold up
  /// to a sixteenth of its tiles more than if loaded so, since what stays keeps its place. On the host a few hundred
  /// bytes for each copy and 12 for each unit of the ranges, and the programs of all contexts twice.
  /// The deadline ends the waiting for a turn as well.
  /// Errors: kInvalidArgument (split mode, shares, homes, staging_bytes; only the vocabulary was loaded), kBusy,
  /// kDoesNotFit (per device: what is lacking, and free), kOutOfMemory, kCancelled, kDeadlineExceeded, or what a copy
  /// failed with: then everything is as it was, and works. Throws std::bad_alloc, with the same promise.
  /// kDeviceLost: a device died, or a failed switch could not be undone; what the devices held is gone, so every decode
  /// and every later switch of this model says so too. The last logits, the placement and what is saved remain
  /// readable; the model must be loaded anew.
  Result<TransitionReport> set_placement(const PlacementRequest& request, const TransitionOptions& options = {});
  /// What was last asked for and holds. Empty when only the vocabulary was loaded.
  [[nodiscard]] PlacementRequest placement() const;
  /// One more after every switch that succeeded.
  [[nodiscard]] uint64_t placement_version() const;

  /// Keys of the file's metadata, in file order. Valid as long as the model.
  [[nodiscard]] std::vector<std::string_view> metadata_keys() const;
  /// A text as it is, any other value as JSON (gguf/metadata_json.h). Errors: kNotFound.
  [[nodiscard]] Result<std::string> metadata_text(std::string_view key) const;

  /// For runtime only.
  [[nodiscard]] const std::shared_ptr<ModelState>& state() const { return state_; }

 private:
  explicit Model(std::shared_ptr<ModelState> state);
  std::shared_ptr<ModelState> state_;
};

}  // namespace tessera
