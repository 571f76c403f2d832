// tessera.h: placements.

#include <array>
#include <fmt/format.h>

#include "api/handles.h"

namespace tessera::api {
namespace {

constexpr std::array<const char*, 4> kModeNames = {"none", "layer", "tensor", "custom"};
static_assert(kModeNames.size() == TSR_SPLIT_CUSTOM + 1);

// The caller's number may be any.
const char* mode_name(tsr_split_mode mode) {
  const auto index = static_cast<size_t>(mode);
  return index < kModeNames.size() ? kModeNames[index] : nullptr;
}

Result<std::string> known_mode(tsr_split_mode mode) {
  const char* name = mode_name(mode);
  if (name == nullptr) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("split mode {} is none of TSR_SPLIT_NONE, TSR_SPLIT_LAYER, "
                                                           "TSR_SPLIT_TENSOR, TSR_SPLIT_CUSTOM",
                                                           static_cast<int>(mode)));
  }
  return std::string(name);
}

Status set_split_mode(Model& model, tsr_split_mode mode, const double* tensor_split) {
  PlacementRequest request;
  ASSIGN_OR_RETURN(request.split_mode, known_mode(mode));
  if (mode == TSR_SPLIT_CUSTOM) {
    return {ErrorCode::kInvalidArgument,
            "TSR_SPLIT_CUSTOM needs a home for every tile; give them to tsr_model_set_placement()"};
  }
  if (tensor_split != nullptr) {
    request.tensor_split.assign(tensor_split, tensor_split + model.device_use().size());
  }
  return model.set_placement(request).status();
}

Result<TransitionOptions> switch_options(const tsr_switch_options* given) {
  TransitionOptions options;
  if (given == nullptr) {
    return options;
  }
  ASSIGN_OR_RETURN(const tsr_switch_options known, read_struct(given, "tsr_switch_options"));
  if (!(known.deadline_s >= 0)) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("deadline_s is {}; it counts seconds", known.deadline_s));
  }
  options.wait = !known.no_wait;
  options.deadline_s = known.deadline_s;
  if (known.staging_bytes != 0) {
    options.staging_bytes = known.staging_bytes;
  }
  options.ahead_bytes = known.ahead_bytes;
  if (known.progress != nullptr) {
    options.progress = [known](double fraction) { return known.progress(fraction, known.progress_user); };
  }
  return options;
}

Status set_placement(Model& model, const tsr_placement* placement) {
  ASSIGN_OR_RETURN(const tsr_placement known, read_struct(placement, "tsr_placement"));
  PlacementRequest request;
  ASSIGN_OR_RETURN(request.split_mode, known_mode(known.split_mode));
  ASSIGN_OR_RETURN(const auto shares, array_argument(known.tensor_split, known.n_tensor_split, "tensor_split"));
  ASSIGN_OR_RETURN(const auto homes, array_argument(known.homes, known.n_homes, "homes"));
  // Before anything of the caller's size is made.
  const size_t most = std::max(model.tile_homes().size(), model.device_use().size());
  if (shares.size() > most || homes.size() > most) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{} shares and {} homes for a model of {} devices and {} tiles", shares.size(), homes.size(),
                        model.device_use().size(), model.tile_homes().size())};
  }
  request.tensor_split.assign(shares.begin(), shares.end());
  request.homes.assign(homes.begin(), homes.end());
  ASSIGN_OR_RETURN(const TransitionOptions options, switch_options(known.options));
  return model.set_placement(request, options).status();
}

struct Held {
  tsr_split_mode mode = TSR_SPLIT_NONE;
  PlacementRequest request;
};

Result<Held> held_placement(const Model& model) {
  Held held;
  held.request = model.placement();
  for (size_t i = 0; i < kModeNames.size(); ++i) {
    if (held.request.split_mode == kModeNames[i]) {
      held.mode = static_cast<tsr_split_mode>(i);
      return held;
    }
  }
  return Status(ErrorCode::kUnsupported, "the model was opened for its vocabulary only; it lives nowhere");
}

// Appends elements to a block that begins with a struct, and returns where they lie in it.
template <typename T>
const T* append(char*& next, const std::vector<T>& elements) {
  if (elements.empty()) {
    return nullptr;
  }
  const char* const at = next;
  std::memcpy(next, elements.data(), elements.size() * sizeof(T));
  next += elements.size() * sizeof(T);
  return reinterpret_cast<const T*>(at);
}

Status give_placement(const Model& model, tsr_placement** placement, size_t struct_size) {
  TRY(check_struct_size(struct_size, sizeof(size_t), "tsr_placement"));
  ASSIGN_OR_RETURN(const Held held, held_placement(model));
  const PlacementRequest& request = held.request;
  const size_t begin = (struct_size + alignof(double) - 1) / alignof(double) * alignof(double);
  char* const block =
      make_block(begin + request.tensor_split.size() * sizeof(double) + request.homes.size() * sizeof(int32_t));
  char* next = block + begin;
  tsr_placement known = {};
  known.split_mode = held.mode;
  known.tensor_split = append(next, request.tensor_split);
  known.n_tensor_split = request.tensor_split.size();
  known.homes = append(next, request.homes);
  known.n_homes = request.homes.size();
  known.version = model.placement_version();
  const Status written = write_struct(block, struct_size, known, "tsr_placement");
  if (!written.ok()) {
    tsr_free(block);
    return written;
  }
  *placement = reinterpret_cast<tsr_placement*>(block);
  return {};
}

}  // namespace
}  // namespace tessera::api

using namespace tessera;
using namespace tessera::api;

const char* tsr_split_mode_name(tsr_split_mode mode) {
  const char* name = mode_name(mode);
  return name != nullptr ? name : "unknown";
}

tsr_status tsr_switch_options_init(tsr_switch_options* options, size_t struct_size) {
  return guarded([&] { return init_struct(options, struct_size, tsr_switch_options{}, "tsr_switch_options"); });
}

tsr_status tsr_placement_init(tsr_placement* placement, size_t struct_size) {
  return guarded([&] {
    tsr_placement defaults = {};
    defaults.split_mode = TSR_SPLIT_LAYER;
    return init_struct(placement, struct_size, defaults, "tsr_placement");
  });
}

tsr_status tsr_model_set_split_mode(tsr_model* model, tsr_split_mode mode, const double* tensor_split) {
  return guarded([&]() -> Status {
    TRY(need(model, "model"));
    return set_split_mode(*model->model, mode, tensor_split);
  });
}

// Not a call in the context: it waits for the context's own, rather than refusing beside them.
tsr_status tsr_context_set_split_mode(tsr_context* context, tsr_split_mode mode, const double* tensor_split) {
  return guarded([&]() -> Status {
    TRY(need(context, "context"));
    return set_split_mode(context->context->model(), mode, tensor_split);
  });
}

tsr_status tsr_model_set_placement(tsr_model* model, const tsr_placement* placement) {
  return guarded([&]() -> Status {
    TRY(need(model, "model"));
    return set_placement(*model->model, placement);
  });
}

tsr_status tsr_context_set_placement(tsr_context* context, const tsr_placement* placement) {
  return guarded([&]() -> Status {
    TRY(need(context, "context"));
    return set_placement(context->context->model(), placement);
  });
}

tsr_status tsr_model_get_split_mode(const tsr_model* model, tsr_split_mode* mode) {
  return guarded([&]() -> Status {
    TRY(need_output(mode, "mode"));
    TRY(need(model, "model"));
    ASSIGN_OR_RETURN(const Held held, held_placement(*model->model));
    *mode = held.mode;
    return {};
  });
}

tsr_status tsr_model_placement(const tsr_model* model, tsr_placement** placement, size_t struct_size) {
  return guarded([&]() -> Status {
    TRY(need_output(placement, "placement"));
    TRY(need(model, "model"));
    return give_placement(*model->model, placement, struct_size);
  });
}
