// How long the planner of transitions takes.
//
//   planner_bench [GIB [TILES]]
//
// A model of GIB (100) in about TILES (10,000) tiles on a grid of 256 KiB goes from the layer to the tensor placement
// and back, on two and on four devices, in pieces of 32 MiB and of 1 MiB (as a switch on CPUs): time of
// make_placement() with keep_places(), of plan_transition() and of predict_seconds(), best of seven runs in thread CPU
// time, so that a busy machine disturbs the figures little. Beside them what was planned: units of the grid, moves,
// steps that the planner counted, bytes that cross.

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/checked.h"
#include "placement/placement.h"
#include "placement/planner.h"
#include "timing.h"

namespace tessera {
namespace {

using bench::fastest;

constexpr uint64_t kUnitBytes = 256 << 10;
constexpr uint64_t kStagedPieces = 16;

template <typename Work>
double best_ms(const Work& work) {
  return fastest(7, work) * 1e3;
}

/// Layers of one attention and one feed-forward tile per cut, and experts: five tiles of six.
struct SyntheticModel {
  TileSet tiles;
  std::vector<uint64_t> bytes;  // by tile

  SyntheticModel(uint64_t total_bytes, int n_tiles, int n_cuts) {
    const int per_layer = 12 * n_cuts;
    const int n_layers = std::max(1, n_tiles / per_layer);
    const uint64_t mean = total_bytes / static_cast<uint64_t>(n_layers * per_layer);
    tiles.n_cuts = n_cuts;
    tiles.attn_cuts.resize(static_cast<size_t>(n_layers));
    for (int layer = 0; layer < n_layers; ++layer) {
      for (int i = 0; i < per_layer; ++i) {
        Tile tile;
        tile.kind = i < n_cuts ? TileKind::kAttn : i < 2 * n_cuts ? TileKind::kFfn : TileKind::kExpert;
        tile.layer = layer;
        tile.cut = tile.kind == TileKind::kExpert ? (i - 2 * n_cuts) / 10 : i % n_cuts;
        tiles.tiles.push_back(tile);
        // Attention and feed-forward tiles differ from layer to layer, as they do where formats are mixed.
        const uint64_t odd = static_cast<uint64_t>(layer % 3) * kUnitBytes / 2;
        bytes.push_back(tile.kind == TileKind::kExpert ? mean : mean + odd);
      }
    }
  }
};

PlacementTarget target_of(const SyntheticModel& model, int n_devices) {
  PlacementTarget target;
  target.n_devices = n_devices;
  target.tile_bytes = [&](const Tile& tile, int) {
    return model.bytes[static_cast<size_t>(&tile - model.tiles.tiles.data())];
  };
  target.unit_bytes = [](int) { return kUnitBytes; };
  return target;
}

TransitionRequest request_of(const SyntheticModel& model, const Placement& from, const Placement& to, int n_devices,
                             uint64_t piece_bytes) {
  TransitionRequest request;
  request.piece_bytes = piece_bytes;
  request.staging_bytes = kStagedPieces * piece_bytes;
  request.pools.assign(static_cast<size_t>(n_devices), {kUnitBytes, uint64_t{1} << 46});
  for (size_t t = 0; t < model.bytes.size(); ++t) {
    request.extents.push_back({model.bytes[t], {from.home[t], from.offset[t]}, {to.home[t], to.offset[t]}});
  }
  return request;
}

bool measure(const SyntheticModel& model, int n_devices, SplitMode from_mode, SplitMode to_mode, uint64_t piece_bytes) {
  const PlacementTarget target = target_of(model, n_devices);
  const Placement from = make_placement(model.tiles, from_mode, {}, target, 1);
  Placement to;
  const double place_ms = best_ms(
      [&] { to = keep_places(model.tiles, make_placement(model.tiles, to_mode, {}, target, 2), from, target); });
  const TransitionRequest request = request_of(model, from, to, n_devices, piece_bytes);
  Result<Plan> plan = Plan{};
  const double plan_ms = best_ms([&] { plan = plan_transition(request); });
  if (!plan.ok()) {
    std::fprintf(stderr, "planner_bench: %s\n", plan.status().message().c_str());
    return false;
  }
  double seconds = 0;
  const double predict_ms =
      best_ms([&] { seconds = predict_seconds(*plan, [](int32_t, int32_t) { return LinkSpeed{25e9, 5e-6}; }); });
  uint64_t crossed = 0;
  uint64_t local = 0;
  for (const LinkUse& link : link_use(*plan)) {
    (link.from == link.to ? local : crossed) += link.bytes;
  }
  uint64_t n_units = 0;
  for (const uint64_t bytes : model.bytes) {
    n_units += div_up(bytes, kUnitBytes);
  }
  const auto gib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  std::printf(
      "%d devices  %-6s -> %-6s  pieces %2llu MiB  place %6.2f ms  plan %6.2f ms  predict %5.2f ms   %zu tiles  %llu "
      "units  "
      "%zu moves  %lld steps  %.1f GiB cross  %.1f GiB move within  at 25 GB/s %.2f s\n",
      n_devices, std::string(split_mode_name(from_mode)).c_str(), std::string(split_mode_name(to_mode)).c_str(),
      static_cast<unsigned long long>(piece_bytes >> 20), place_ms, plan_ms, predict_ms, model.bytes.size(),
      static_cast<unsigned long long>(n_units), plan->moves.size(), static_cast<long long>(plan->n_steps), gib(crossed),
      gib(local), seconds);
  return true;
}

int run(int argc, char** argv) {
  const double gib = argc > 1 ? std::atof(argv[1]) : 100;
  const int n_tiles = argc > 2 ? std::atoi(argv[2]) : 10000;
  if (!(gib > 0 && gib < 4096) || n_tiles < 1 || n_tiles > 1000000) {
    std::fprintf(stderr, "usage: planner_bench [GIB [TILES]]\n");
    return 2;
  }
  bool ok = true;
  for (const int n_devices : {2, 4}) {
    const SyntheticModel model(static_cast<uint64_t>(gib * (1 << 30)), n_tiles, n_devices);
    for (const uint64_t piece_bytes : {uint64_t{32} << 20, uint64_t{1} << 20}) {
      ok = measure(model, n_devices, SplitMode::kLayer, SplitMode::kTensor, piece_bytes) && ok;
      ok = measure(model, n_devices, SplitMode::kTensor, SplitMode::kLayer, piece_bytes) && ok;
    }
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::run(argc, argv);
}
