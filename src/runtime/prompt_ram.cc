#include "runtime/prompt_ram.h"

#include "runtime/kept_prompts_options.h"

namespace tessera {

std::shared_ptr<PromptRam> make_prompt_ram(uint64_t max_bytes) {
  return std::make_shared<PromptRam>(max_bytes);
}

void PromptRam::join(Holder& holder) {
  const std::lock_guard lock(mutex_);
  holders_.push_back(&holder);
}

void PromptRam::leave(Holder& holder) {
  const std::lock_guard lock(mutex_);
  std::erase(holders_, &holder);
}

void PromptRam::balance() {
  const std::lock_guard lock(mutex_);
  while (true) {
    uint64_t n_bytes = 0;
    Holder* oldest = nullptr;
    uint64_t oldest_use = std::numeric_limits<uint64_t>::max();
    for (Holder* holder : holders_) {
      const Holding holding = holder->holding();
      n_bytes += holding.n_bytes;
      if (holding.n_bytes > 0 && holding.oldest_use < oldest_use) {
        oldest = holder;
        oldest_use = holding.oldest_use;
      }
    }
    if (n_bytes <= max_bytes_ || oldest == nullptr) {
      return;
    }
    oldest->drop_oldest();
  }
}

}  // namespace tessera
