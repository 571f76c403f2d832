#pragma once
// A folder of kept states: one file each, in the state format (memory/state_format.h), so that any of them can also be
// given to a slot by hand. The name says the model and the tokens:
//
//   <fingerprint of the model, 32 hex digits>-<XXH64 of tokens and cache types, 16 hex digits>.state
//
// There is no index that could be wrong: what a file holds is read from its head. Files come and go as a whole, and
// equal names have equal contents, so several servers may use one folder; its limit is for all of them together, and
// the file that was used least recently (its time of change) goes first. What is named otherwise is never touched.
//
// Not thread-safe: only the const members are.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "memory/state_format.h"
#include "runtime/prompt_store.h"

namespace tessera {

/// What a state's heads say of it.
PromptOutline prompt_outline(const StateShape& shape, StateSequence sequence);

/// Memory for a state, its bytes not set. Errors: kOutOfMemory.
Result<StateBytes> allocate_state(uint64_t n_bytes);

class PromptFolder {
 public:
  struct File {
    std::string name;
    PromptOutline outline;
    uint64_t n_bytes = 0;
  };

  /// Makes the folder where there is none. Errors: kIo, kNotFound, kInvalidArgument: it cannot be made or written to.
  static Result<PromptFolder> open(const std::string& path, StateShape shape, uint64_t max_bytes);

  /// This model's states, those used least recently first. Damaged ones are removed, as is what interrupted writes left
  /// behind long ago; states with other cache types are passed over.
  [[nodiscard]] std::vector<File> scan(const Log& log) const;

  /// Writes a state. Result: the name of its file. Errors: kIo, kNotFound; then there is none.
  [[nodiscard]] Result<std::string> write(const PromptOutline& outline, const StateBytes& bytes) const;
  /// Reads it again and notes that it was used. Errors: kNotFound, kIo, kOutOfMemory; kInvalidData when it has another
  /// size.
  [[nodiscard]] Result<StateBytes> read(const std::string& name, uint64_t n_bytes) const;
  void remove(const std::string& name) const;

  struct Trimmed {
    std::vector<std::string> names;  // of files that went
    uint64_t n_bytes = 0;            // that are left
  };
  /// Removes states, of whichever model, until the rest is within the limit.
  [[nodiscard]] Trimmed trim() const;

  [[nodiscard]] uint64_t max_bytes() const { return max_bytes_; }

 private:
  PromptFolder(std::string path, StateShape shape, uint64_t max_bytes)
      : path_(std::move(path)), shape_(std::move(shape)), max_bytes_(max_bytes) {}
  [[nodiscard]] std::string path_of(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] std::string model_prefix() const;

  std::string path_;
  StateShape shape_;
  uint64_t max_bytes_;
};

}  // namespace tessera
