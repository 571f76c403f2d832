#include "runtime/outline.h"

#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/cpu/cpu_kernels.h"
#include "runtime/home_override.h"
#include "runtime/model_file.h"
#include "runtime/placement_switch.h"

namespace tessera {
namespace {

Result<CpuIsa> parse_isa(const std::string& name) {
  const std::vector<CpuIsa> available = cpu_isas();
  if (name == "auto") {
    return available.back();
  }
  std::string names;
  for (const CpuIsa isa : {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvxVnni, CpuIsa::kAvx512Vnni}) {
    if (name == cpu_isa_name(isa)) {
      return isa;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", cpu_isa_name(isa));
  }
  return Status(ErrorCode::kInvalidArgument, fmt::format("--cpu-isa {}: known are auto, {}", name, names));
}

}  // namespace

Status define_model(ModelState& model, const std::string& path) {
  ASSIGN_OR_RETURN(model.definition, build_model(*model.file));
  model.kv_classes = kv_classes(model.definition.program);
  if (model.tokenizer != nullptr && model.tokenizer->n_vocab() > model.definition.info.n_vocab) {
    return {ErrorCode::kInvalidData,
            fmt::format("{}: the vocabulary has {} tokens, but tensor token_embd.weight only {} rows", path,
                        model.tokenizer->n_vocab(), model.definition.info.n_vocab)};
  }
  return {};
}

Status open_model_devices(ModelState& model, const ModelOptions& options, bool only_counting) {
  ASSIGN_OR_RETURN(CpuIsa isa, parse_isa(options.cpu_isa));
  const bool scalar = options.kernels == "scalar";
  if (!scalar && options.kernels != "auto" && options.kernels != "fast") {
    return {ErrorCode::kInvalidArgument, fmt::format("--kernels {}: known are auto, fast, scalar", options.kernels)};
  }
  isa = scalar ? CpuIsa::kPortable : isa;
  ASSIGN_OR_RETURN(const KernelTable* kernels,
                   cpu_kernel_table(scalar ? CpuKernelSet::kScalar : CpuKernelSet::kFast, isa));
  model.summary.kernel_class = kernels->kernel_class();
  model.summary.cpu_isa = cpu_isa_name(isa);
  DeviceOptions devices;
  devices.names = options.devices;
  devices.budget_bytes = options.device_memory;
  devices.ledger = options.memory_ledger;
  devices.n_threads = options.n_threads;
  devices.cpu_affinity = {options.cpu_mask, options.cpu_range, options.cpu_strict, options.numa};
  devices.cpu_kernel_class = kernels->kernel_class();
  ASSIGN_OR_RETURN(model.devices, options.open_devices ? options.open_devices(devices) : open_devices(devices));
  static_assert(kMaxDevices <= kMaxMaskDevices);
  CHECK(model.n_devices() <= kMaxMaskDevices);
  for (const auto& device : model.devices.devices) {
    const bool computes = device->info().computes && device->info().kernel_class == kernels->kernel_class();
    if (!computes && !only_counting) {
      return {
          ErrorCode::kUnsupported,
          fmt::format("device {} computes nothing; it serves planning only. Use --device cpu:0", device->info().name)};
    }
  }
  model.weights.resize(model.devices.size());
  for (DeviceWeights& weights : model.weights) {
    weights.kernels = kernels;
  }
  return {};
}

Result<int> cuts_of(const ModelState& model, const ModelOptions& options, const Shares& shares) {
  TRY(check_shares(shares, model.n_devices()));
  if (options.n_cuts < 0 || options.n_cuts > kMaxCuts) {
    return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("--cuts is {}; it must be 0 (as devices and shares ask) to {}", options.n_cuts, kMaxCuts));
  }
  return std::min(choose_n_cuts(shares, model.n_devices(), options.n_cuts), kMaxCuts);
}

Status cut_model(ModelState& model, int n_cuts) {
  const TensorTable& table = model.definition.table;
  for (const TensorSpec& spec : table.tensors) {
    const bool product = spec.tile != TileKind::kReplica && spec.tile != TileKind::kHost;
    for (const DeviceWeights& weights : model.weights) {
      if (product && weights.kernels->layout(spec.dtype) == nullptr) {
        return {ErrorCode::kUnsupported,
                fmt::format("{}: tensor {} has type {}, for which kernel class {} has no product", model.file->path(),
                            spec.name, dtype_name(spec.dtype), weights.kernels->kernel_class())};
      }
    }
  }
  model.tiles = make_tiles(table, n_cuts);
  model.replicas = layout_replicas(table);
  for (DeviceWeights& weights : model.weights) {
    const PanelSizer sizer = [&](DType dtype, int64_t rows, int64_t columns) {
      return weights.kernels->layout(dtype)->packed_bytes(dtype, rows, columns);
    };
    weights.tile_layouts.clear();
    for (const Tile& tile : model.tiles.tiles) {
      weights.tile_layouts.push_back(layout_tile(table, tile, sizer));
    }
  }
  return {};
}

Status fix_homes(ModelState& model, const ModelOptions& options) {
  ASSIGN_OR_RETURN(model.fixed_home, fixed_homes(options, model.definition.table, model.tiles, model.devices));
  model.n_expert_slots = options.n_expert_slots;
  return {};
}

void place_model(ModelState& model, Placement placement) {
  model.placement = std::move(placement);
  for (size_t d = 0; d < model.weights.size(); ++d) {
    model.weights[d].tiles_offset = round_up(model.replicas.bytes, model.devices[d].info().unit_bytes);
    model.weights[d].bytes = model.weight_bytes(model.placement, d);
  }
}

Status place_by_options(ModelState& model, const ModelOptions& options) {
  TRY(parse_split_mode(options.split_mode).status());
  ASSIGN_OR_RETURN(const int n_cuts, cuts_of(model, options, Shares{options.tensor_split}));
  TRY(cut_model(model, n_cuts));
  TRY(fix_homes(model, options));
  model.request = {options.split_mode, options.tensor_split};
  ASSIGN_OR_RETURN(Placement placement, requested_placement(model, model.request, 1));
  place_model(model, std::move(placement));
  return {};
}

std::string rounding_note(const ModelState& model, SplitMode mode, const Shares& shares) {
  if (shares.parts.empty() || mode != SplitMode::kTensor) {
    return {};
  }
  const int n_cuts = model.tiles.n_cuts;
  const std::vector<int> counts = cuts_per_device(shares, model.n_devices(), n_cuts);
  std::string text;
  for (int d = 0; d < model.n_devices(); ++d) {
    const int count = counts[static_cast<size_t>(d)];
    if (std::abs(static_cast<double>(count) / n_cuts - shares.of(d, model.n_devices())) > 0.005) {
      text += fmt::format("{}{} gets {} of {}", text.empty() ? "" : ", ",
                          model.devices[static_cast<size_t>(d)].info().name, count, n_cuts);
    }
  }
  return text.empty() ? text : fmt::format("rounded to what {} cuts express: {}", n_cuts, text);
}

void report_shares(const ModelState& model, SplitMode mode, const Shares& shares, const Log& log) {
  if (const std::string note = rounding_note(model, mode, shares); !note.empty()) {
    log.info("--tensor-split is " + note);
  }
}

Result<std::unique_ptr<ModelState>> open_outline(const ModelOptions& options) {
  auto model = std::make_unique<ModelState>();
  ASSIGN_OR_RETURN(model->file, open_model_file(options));
  model->file->forget_arrays("tokenizer.");
  TRY(define_model(*model, options.path));
  TRY(open_model_devices(*model, options, true));
  return model;
}

}  // namespace tessera
