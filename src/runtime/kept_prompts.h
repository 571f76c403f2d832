#pragma once
// The host tier of a context's memory: states of sequences that had to leave their slots, kept in host memory and,
// where a folder is given, over restarts of the process.
//
// PromptStore is the book, PromptFolder the files. States are copied out of and into the context by the caller's
// thread, between two steps; a thread of this class's own reads the folder's heads at the start, writes what was kept
// and removes what is needless. Whatever fails (memory, disk, a damaged file) costs a state, which is read again from
// its tokens, and leaves a warning.
//
// Threads: keep(), fetch() and restore() from the thread that uses the context, the others from any.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "base/log.h"
#include "base/status.h"
#include "runtime/context.h"
#include "runtime/kept_prompts_options.h"
#include "runtime/prompt_folder.h"
#include "runtime/prompt_ram.h"
#include "runtime/prompt_store.h"
#include "runtime/scheduler.h"

namespace tessera {

class KeptPrompts : public KeptPrefixes, private PromptRam::Holder {
 public:
  /// Errors: those of model_fingerprint() and PromptFolder::open().
  static Result<std::unique_ptr<KeptPrompts>> open(const Context& context, const KeptPromptsOptions& options,
                                                   const Log& log);
  /// As finish().
  ~KeptPrompts() override;
  KeptPrompts(const KeptPrompts&) = delete;
  KeptPrompts& operator=(const KeptPrompts&) = delete;

  /// Begins to read and write the folder, if there is one. on_written: called from the thread here when all is written
  /// that was to be. Errors: kOutOfMemory.
  Status start(std::function<void()> on_written);
  /// Returns when nothing waits to be written.
  void flush();
  /// Writes what waits to be written and ends the thread; what is kept afterwards is not written.
  void finish();

  [[nodiscard]] int64_t longest(std::span<const int32_t> tokens) const override;

  /// Brings the state that gives most of these tokens from its file to memory, where it gives more than `n_there`, so
  /// that fetch() need not. Waits for the folder's heads to be read.
  void warm(std::span<const int32_t> tokens, int64_t n_there);

  /// Keeps what a sequence holds, if that spares enough tokens (worth_keeping()) beside the `n_elsewhere` that stay in
  /// slots, and those that are kept already.
  void keep(Context& context, int32_t seq, int64_t n_elsewhere);

  struct Fetched {
    uint64_t id = 0;
    int64_t length = 0;
    StateBytes bytes;  // null: nothing
  };
  /// The state that gives most of these tokens; it stays valid whatever is kept meanwhile.
  Fetched fetch(std::span<const int32_t> tokens);
  /// Puts it in place of what a sequence holds, cut to fetched.length. Result: the sequence's length, 0 where the state
  /// could not be used. Errors: the context is dead.
  /// wanted: the tokens that were asked for; a state of others is dropped.
  Result<int64_t> restore(Context& context, int32_t seq, const Fetched& fetched, std::span<const int32_t> wanted);

  [[nodiscard]] bool has_folder() const { return folder_.has_value(); }
  /// Whether states wait to be written.
  [[nodiscard]] bool busy() const;
  [[nodiscard]] KeptPromptsCounters counters() const;

 private:
  KeptPrompts(StateShape shape, const KeptPromptsOptions& options, Log log);
  [[nodiscard]] PromptRam::Holding holding() const override;
  void drop_oldest() override;
  void run();
  void read_folder();
  void write(uint64_t id);
  void set_bytes(uint64_t id, StateBytes bytes);
  void set_saved(uint64_t id, std::string file);
  Status write_file(uint64_t id);
  void remove_dropped();
  Status take_state(Context& context, int32_t seq);
  void fail(const Status& status);

  const StateShape shape_;
  const std::shared_ptr<PromptRam> ram_;  // balanced after each change of bytes, without the mutex
  const Log log_;
  std::optional<PromptFolder> folder_;
  std::function<void()> on_written_;

  mutable std::mutex mutex_;      // guards all below; never held while files or the context are used
  std::condition_variable wake_;  // the thread: there is something to do
  std::condition_variable rest_;  // others: the folder's heads have been read, or all is written
  PromptStore store_;
  std::deque<uint64_t> to_write_;
  bool is_listed_ = false;
  bool is_writing_ = false;
  bool stopping_ = false;
  KeptPromptsCounters counters_;

  std::thread thread_;  // with a folder only
};

}  // namespace tessera
