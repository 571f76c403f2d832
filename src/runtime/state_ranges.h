#pragma once
// State of one context on its devices, KV or recurrent: one range per device, in which the state of every (layer, cut)
// whose attention tile the device has lies on the unit grid. Private to runtime; on the loop thread only.
//
// A range's address space is for any placement, so addresses of what stays never change; only what the present one
// needs is backed by memory.

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/model_state.h"

namespace tessera {

class StateRanges {
 public:
  /// The model must outlive this.
  explicit StateRanges(const ModelState& model) : model_(model) {}

  /// Takes memory under the model's placement. tile_bytes: index layer * n_cuts + cut; 0: there is none.
  /// Errors: those of Device::reserve() and MemoryRange::resize().
  Status open(std::vector<uint64_t> tile_bytes, const char* purpose);

  /// Where each state lies; null where there is none.
  [[nodiscard]] const std::vector<std::byte*>& bases() const { return bases_; }
  [[nodiscard]] const std::vector<uint64_t>& tile_bytes() const { return tile_bytes_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  /// By device; empty when there is no state at all.
  [[nodiscard]] const std::vector<std::unique_ptr<MemoryRange>>& ranges() const { return ranges_; }
  [[nodiscard]] uint64_t committed_bytes(size_t device) const {
    return ranges_.empty() ? 0 : ranges_[device]->committed_bytes();
  }

  /// The layout under another placement that moves little (keep_offsets), and the bases in it.
  [[nodiscard]] Layout layout_for(const Placement& placement) const;
  [[nodiscard]] std::vector<std::byte*> bases_for(const Layout& layout) const;
  /// From now on the states lie so.
  void take(Layout layout, std::vector<std::byte*> bases) noexcept {
    layout_ = std::move(layout);
    bases_ = std::move(bases);
  }

 private:
  const ModelState& model_;
  std::vector<uint64_t> tile_bytes_;
  Layout layout_;
  std::vector<std::byte*> bases_;
  std::vector<std::unique_ptr<MemoryRange>> ranges_;
};

}  // namespace tessera
