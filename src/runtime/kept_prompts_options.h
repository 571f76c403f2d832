#pragma once
// What kept_prompts.h is asked for, and what it has done; for those who ask without knowing how it works.

#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

class PromptRam;
/// A limit for all whose options have it.
std::shared_ptr<PromptRam> make_prompt_ram(uint64_t max_bytes);

struct KeptPromptsOptions {
  std::shared_ptr<PromptRam> ram;  // of all models together; null: nothing is held in host memory
  std::string folder;              // where states outlive the process; empty: nowhere
  uint64_t folder_bytes = 0;       // of all states in it
  [[nodiscard]] bool wanted() const { return ram != nullptr || !folder.empty(); }
};

/// Totals since the start, and how it is now.
struct KeptPromptsCounters {
  uint64_t n_kept = 0;           // states taken out of slots
  double keep_ms = 0;            // for that; steps wait for it
  uint64_t n_restored = 0;       // states put back into slots
  uint64_t restored_tokens = 0;  // that they brought
  double restore_ms = 0;         // for that; steps wait for it
  uint64_t n_failed = 0;         // states that could not be kept, written, read or put back
  uint64_t n_states = 0;         // now
  uint64_t ram_bytes = 0;        // now
  uint64_t folder_bytes = 0;     // now, as of the last write
};

}  // namespace tessera
