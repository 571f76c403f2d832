#pragma once
// Pages of the host that ranges of one device gave back and that are backed still: a range which grows into them again
// meets no page faults. Nobody's use, and yet memory: who needs the room drops them. Any thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace tessera {

class SparePages {
 public:
  /// Keeps these whole pages until take() or drop(); where the host has no memory to note them, they go at once.
  /// REQUIRES: none of them is kept already.
  void keep(std::byte* begin, uint64_t bytes) noexcept;
  /// How many bytes from `begin` on are still kept. They are the caller's from now on.
  uint64_t take(std::byte* begin);
  /// Gives `bytes` in whole pages back to the system, all where there are fewer. The address space stays mapped.
  void drop(uint64_t bytes);

  [[nodiscard]] uint64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::byte*, uint64_t> pages_;  // by where they begin, bytes
  uint64_t bytes_ = 0;                    // of all
};

}  // namespace tessera
