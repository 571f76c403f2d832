#pragma once
// The host memory that kept prompts of several models share: one limit for all, and one order of use.
//
// Each model's store lets go of its own oldest bytes; here is decided whose are the oldest of all. Thread-safe.

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

namespace tessera {

class PromptRam {
 public:
  /// What a holder could let go of.
  struct Holding {
    uint64_t n_bytes = 0;
    uint64_t oldest_use = std::numeric_limits<uint64_t>::max();  // of next_use()
  };
  class Holder {
   public:
    virtual ~Holder() = default;
    [[nodiscard]] virtual Holding holding() const = 0;
    /// Lets go of what was used least recently, if there is anything.
    virtual void drop_oldest() = 0;
  };

  explicit PromptRam(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  [[nodiscard]] uint64_t max_bytes() const { return max_bytes_; }
  /// Larger at every call.
  uint64_t next_use() { return ++n_uses_; }

  void join(Holder& holder);
  /// The holder is not called any more when this returns.
  void leave(Holder& holder);

  /// Has those let go who hold what was used least recently, until all together are within the limit. REQUIRES: not
  /// called from a holder, nor with a lock that a holder takes.
  void balance();

 private:
  const uint64_t max_bytes_;
  std::atomic<uint64_t> n_uses_ = 0;
  std::mutex mutex_;  // taken before the holders'
  std::vector<Holder*> holders_;
};

}  // namespace tessera
