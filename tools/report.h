#pragma once
// The parts of reports that several commands print: placement, devices and lowering, as JSON for programs and as a
// table for people. JSON comes as text, because our headers stay free of the JSON library.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/engine.h"

namespace tessera {

/// {"split_mode", "n_cuts", "version", "n_layers_attn_cut", "n_layers_ffn_cut", "kernel_class", "cpu_isa"}
std::string placement_json(const Model& model);

/// [{"name", "weight_bytes", "kv_bytes", "rec_bytes", "scratch_bytes", "spare_bytes", "n_tiles", "budget_bytes"}, ...]
std::string devices_json(const Model& model);

/// {"n_tiles", "n_steps", "n_reduces", "n_copies", "copy_bytes_per_token", "n_segments", "n_layers_attn_cut",
/// "n_layers_ffn_cut", "n_cuts"}
std::string stats_json(const Context& context);

/// One line for people: split mode, cuts, kernels. Equal cuts and kernels give equal bits.
std::string placement_line(const Model& model);

/// One line per device: weights, KV, scratch, budget in MiB, tiles.
std::string device_table(const Model& model);

/// MiB with one digit after the point.
std::string mib_cell(uint64_t bytes);

/// Columns two blanks apart, the first to the left, the others to the right. The first row is the head.
std::string format_table(std::span<const std::vector<std::string>> rows);

}  // namespace tessera
