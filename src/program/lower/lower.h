#pragma once
// Lowering: a program and a placement become command lists, once per placement and context.
//
// The result holds for every batch up to the given sizes: commands take the number of rows when they are submitted, and
// positions, sequence rows and page tables are read from device memory. The same code counts scratch bytes (with null
// addresses) and carves them, so estimate and use cannot drift. Pure but for the addresses that it writes into
// arguments: nothing is submitted here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/kernel_table.h"
#include "placement/placement.h"
#include "program/build/kv_classes.h"
#include "program/build/program.h"
#include "program/lower/recorder.h"

namespace tessera {

/// The largest micro-batch that a lowered program takes.
struct BatchShape {
  int64_t n_tokens = 0;
  int64_t n_outputs = 0;
  int64_t n_seqs = 0;
  int64_t row_pages = 0;    // entries of one page-table row
  bool embeddings = false;  // tokens may want their embeddings
};

/// Where the host puts a micro-batch for upload: byte offsets into one staging block.
struct HostInputLayout {
  uint64_t embeddings = 0;      // [n_tokens, n_embd] f32
  uint64_t positions = 0;       // [n_tokens] i32
  uint64_t seq_rows = 0;        // [n_tokens] i32
  uint64_t output_rows = 0;     // [n_outputs] i32
  uint64_t embedding_rows = 0;  // [n_tokens] i32, as many as want embeddings; without BatchShape::embeddings none
  struct Class {
    uint64_t slots = 0;       // [n_tokens] i32
    uint64_t page_table = 0;  // [n_seqs, row_pages] i32
  };
  std::vector<Class> classes;
  uint64_t rec_rows = 0;  // [n_tokens] i32
  uint64_t rec_runs = 0;  // [n_seqs] RecRun
  uint64_t bytes = 0;
};
HostInputLayout host_input_layout(const BatchShape& shape, int64_t n_embd, size_t n_classes);

/// A device as lowering sees it: addresses of its regions (null when only counting) and its kernels.
struct LowerDevice {
  std::byte* tiles = nullptr;
  std::byte* replicas = nullptr;
  std::byte* scratch = nullptr;
  const KernelTable* kernels = nullptr;
  const std::vector<TileLayout>* tile_layouts = nullptr;  // by tile
};

struct LowerInput {
  const TensorTable* table = nullptr;
  const Program* program = nullptr;
  const TileSet* tiles = nullptr;
  const Placement* placement = nullptr;
  const ReplicaLayout* replicas = nullptr;
  std::vector<LowerDevice> devices;
  int64_t n_expert_slots = 1;  // of a device for each layer whose experts are streamed to it
  DType k_type = DType::kF16;
  DType v_type = DType::kF16;
  std::vector<std::byte*> kv_bases;   // [layer * n_cuts + cut]; null where the cut is empty
  std::vector<std::byte*> rec_bases;  // the same; null also where the layer has no recurrent state
  BatchShape shape;
  std::array<std::byte*, 2> host_inputs{};  // by parity: HostInputLayout's block
  std::array<float*, 2> host_logits{};      // by parity: [n_outputs, n_vocab] f32
  std::array<float*, 2> host_embeddings{};  // by parity: [n_tokens, n_embd] f32
  bool count_only = false;                  // only scratch_bytes and stats are wanted; addresses may be anything
};

/// What one micro-batch does, for people and tests.
struct LowerStats {
  int64_t n_kernels = 0;
  int64_t n_reduces = 0;  // reduce steps that add pieces of two or more cuts
  int64_t n_copies = 0;   // between devices
  int64_t copy_floats_per_token = 0;
};

struct Lowered {
  std::vector<Segment> segments;
  std::vector<int32_t> upload_segments;    // when these are done, the host may rewrite its inputs
  std::vector<int32_t> download_segments;  // when these are done, the host has the logits
  /// Brings embeddings to the host; where none are wanted it is not submitted, else with their number for that of the
  /// outputs. -1: the shape has none.
  int32_t embedding_segment = -1;
  std::vector<uint64_t> scratch_bytes;  // by device
  LowerStats stats;
};

/// Errors: kUnsupported when a device's kernel class lacks an op or cache type (names both).
Result<Lowered> lower(const LowerInput& input);

}  // namespace tessera
