#include "runtime/kept_prompts.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <new>
#include <utility>

#include "base/threads.h"
#include "runtime/context_state.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// States may wait to be written beside the limit of memory, so that a folder is of use without any.
constexpr uint64_t kUnsavedBytes = 256U << 20;
// Requests wait so long for the heads of a folder; a slow disk makes them read their prompts.
constexpr std::chrono::seconds kListTime{10};

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

KeptPrompts::KeptPrompts(StateShape shape, const KeptPromptsOptions& options, Log log)
    : shape_(std::move(shape)),
      ram_(options.ram != nullptr ? options.ram : std::make_shared<PromptRam>(0)),
      log_(std::move(log)),
      store_(*ram_) {
  ram_->join(*this);
}

Result<std::unique_ptr<KeptPrompts>> KeptPrompts::open(const Context& context, const KeptPromptsOptions& options,
                                                       const Log& log) {
  ASSIGN_OR_RETURN(StateShape shape, state_shape(*context.model().state(), context.options()));
  std::unique_ptr<KeptPrompts> cache(new KeptPrompts(std::move(shape), options, log));
  if (!options.folder.empty()) {
    auto folder = PromptFolder::open(options.folder, cache->shape_, options.folder_bytes);
    TRY(folder.status().with_context("--cache-dir"));
    cache->folder_ = std::move(*folder);
  }
  return cache;
}

KeptPrompts::~KeptPrompts() {
  finish();
  ram_->leave(*this);
}

PromptRam::Holding KeptPrompts::holding() const {
  const std::lock_guard lock(mutex_);
  return store_.holding();
}

void KeptPrompts::drop_oldest() {
  const std::lock_guard lock(mutex_);
  store_.drop_oldest();
}

Status KeptPrompts::start(std::function<void()> on_written) {
  on_written_ = std::move(on_written);
  if (folder_) {
    ASSIGN_OR_RETURN(thread_, start_thread("prompts", [this] { run(); }));
  }
  return {};
}

void KeptPrompts::flush() {
  std::unique_lock lock(mutex_);
  rest_.wait(lock, [&] { return !is_writing_ && to_write_.empty(); });
}

void KeptPrompts::finish() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

int64_t KeptPrompts::longest(std::span<const int32_t> tokens) const {
  const std::lock_guard lock(mutex_);
  return store_.find(tokens).length;
}

void KeptPrompts::warm(std::span<const int32_t> tokens, int64_t n_there) {
  if (!folder_) {
    return;
  }
  PromptStore::Match match;
  std::string file;
  uint64_t n_bytes = 0;
  {
    std::unique_lock lock(mutex_);
    rest_.wait_for(lock, kListTime, [&] { return is_listed_; });
    match = store_.find(tokens);
    const PromptStore::Entry* entry = store_.entry(match.id);
    if (entry == nullptr || match.length <= n_there || entry->bytes.data != nullptr ||
        entry->n_bytes > ram_->max_bytes()) {
      return;
    }
    file = entry->file;
    n_bytes = entry->n_bytes;
  }
  // What fails here fails again in fetch(), which says so.
  if (auto bytes = folder_->read(file, n_bytes); bytes.ok()) {
    set_bytes(match.id, std::move(*bytes));
  }
}

void KeptPrompts::keep(Context& context, int32_t seq, int64_t n_elsewhere) {
  const std::vector<int32_t> tokens = context.tokens(seq);
  const auto length = static_cast<int64_t>(tokens.size());
  if (!worth_keeping(length - std::max(n_elsewhere, longest(tokens)), length)) {
    return;
  }
  const Clock::time_point begin = Clock::now();
  const Status taken = [&]() -> Status {
    try {
      return take_state(context, seq);
    } catch (const std::bad_alloc&) {
      return {ErrorCode::kOutOfMemory, fmt::format("no memory is left to keep a prompt of {} tokens", length)};
    }
  }();
  if (!taken.ok()) {
    fail(taken);
  }
  const std::lock_guard lock(mutex_);
  counters_.keep_ms += ms_since(begin);
}

Status KeptPrompts::take_state(Context& context, int32_t seq) {
  ASSIGN_OR_RETURN(const uint64_t n_bytes, context.state_bytes(seq));
  bool writes = thread_.joinable() && n_bytes <= folder_->max_bytes();
  if (writes) {
    const std::lock_guard lock(mutex_);
    const uint64_t n_waiting = store_.bytes_unsaved();
    writes = n_waiting == 0 || n_waiting + n_bytes <= std::max(kUnsavedBytes, ram_->max_bytes());
  }
  if (!writes && n_bytes > ram_->max_bytes()) {
    return {};
  }
  ASSIGN_OR_RETURN(StateBytes bytes, allocate_state(n_bytes));
  TRY(context.get_state(seq, bytes.span()));
  ASSIGN_OR_RETURN(StateSequence sequence,
                   read_state_outline(shape_, n_bytes, [&](uint64_t at, std::span<std::byte> out) -> Status {
                     std::ranges::copy(bytes.span().subspan(at, out.size()), out.begin());
                     return {};
                   }));
  {
    const std::lock_guard lock(mutex_);
    const uint64_t id = store_.add(prompt_outline(shape_, std::move(sequence)), std::move(bytes), writes);
    ++counters_.n_kept;
    if (writes) {
      to_write_.push_back(id);
    }
    wake_.notify_all();  // files may have become needless, too
  }
  ram_->balance();
  return {};
}

// The bytes of a state have come from its file.
void KeptPrompts::set_bytes(uint64_t id, StateBytes bytes) {
  {
    const std::lock_guard lock(mutex_);
    store_.set_bytes(id, std::move(bytes));
  }
  ram_->balance();
}

// The bytes of a state are in this file, or, where empty, will be in none.
void KeptPrompts::set_saved(uint64_t id, std::string file) {
  {
    const std::lock_guard lock(mutex_);
    store_.set_saved(id, std::move(file));
  }
  ram_->balance();
}

KeptPrompts::Fetched KeptPrompts::fetch(std::span<const int32_t> tokens) {
  Fetched fetched;
  std::string file;
  uint64_t n_bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const PromptStore::Match match = store_.find(tokens);
    const PromptStore::Entry* entry = store_.entry(match.id);
    if (entry == nullptr) {
      return {};
    }
    store_.touch(match.id);
    fetched = {match.id, match.length, entry->bytes};
    file = entry->file;
    n_bytes = entry->n_bytes;
  }
  if (fetched.bytes.data == nullptr) {
    const Clock::time_point begin = Clock::now();
    auto bytes = folder_->read(file, n_bytes);
    std::unique_lock lock(mutex_);
    counters_.restore_ms += ms_since(begin);
    if (!bytes.ok()) {
      store_.drop(fetched.id);
      // Another server may have removed it.
      if (bytes.status().code() != ErrorCode::kNotFound) {
        ++counters_.n_failed;
        log_.warning(fmt::format("a kept prompt is lost: {}", bytes.status().message()));
      }
      return {};
    }
    fetched.bytes = *bytes;
    lock.unlock();
    if (n_bytes <= ram_->max_bytes()) {
      set_bytes(fetched.id, std::move(*bytes));
    }
  }
  return fetched;
}

Result<int64_t> KeptPrompts::restore(Context& context, int32_t seq, const Fetched& fetched,
                                     std::span<const int32_t> wanted) {
  const Clock::time_point begin = Clock::now();
  const Status restored = fetched.bytes.data == nullptr ? Status() : [&]() -> Status {
    TRY(context.set_state(seq, fetched.bytes.span()));
    ASSIGN_OR_RETURN(const int64_t length, context.rewind(seq, fetched.length));
    // Files are found by a hash: nobody may be given somebody else's.
    const std::vector<int32_t> tokens = context.tokens(seq);
    if (length > std::ssize(wanted) || !std::ranges::equal(tokens, wanted.first(static_cast<size_t>(length)))) {
      return {ErrorCode::kInvalidData, "it holds other tokens than its name says"};
    }
    return {};
  }();
  if (fetched.bytes.data == nullptr || !restored.ok()) {
    TRY(context.truncate(seq, 0));
  }
  if (!restored.ok()) {
    fail(restored);
  }
  const int64_t length = context.length(seq);
  const std::lock_guard lock(mutex_);
  if (restored.code() == ErrorCode::kInvalidData || restored.code() == ErrorCode::kInvalidArgument) {
    store_.drop(fetched.id);
    wake_.notify_all();
  }
  counters_.n_restored += length > 0 ? 1 : 0;
  counters_.restored_tokens += static_cast<uint64_t>(length);
  counters_.restore_ms += ms_since(begin);
  return length;
}

bool KeptPrompts::busy() const {
  const std::lock_guard lock(mutex_);
  return is_writing_ || !to_write_.empty();
}

KeptPromptsCounters KeptPrompts::counters() const {
  const std::lock_guard lock(mutex_);
  KeptPromptsCounters counters = counters_;
  counters.n_states = store_.n_entries();
  counters.ram_bytes = store_.bytes_held();
  return counters;
}

// A state is lost, and nothing else.
void KeptPrompts::fail(const Status& status) {
  log_.warning(fmt::format("a kept prompt is lost: {}", status.message()));
  const std::lock_guard lock(mutex_);
  ++counters_.n_failed;
}

// The thread.
void KeptPrompts::run() {
  try {
    read_folder();
  } catch (const std::bad_alloc&) {
    fail({ErrorCode::kOutOfMemory, "no memory is left to read the folder of kept prompts"});
  }
  {
    const std::lock_guard lock(mutex_);
    is_listed_ = true;
    rest_.notify_all();
  }
  while (true) {
    uint64_t id = 0;
    bool all_written = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !to_write_.empty() || store_.has_dropped_files(); });
      if (!to_write_.empty()) {
        id = to_write_.front();
        to_write_.pop_front();
        is_writing_ = true;
      } else if (stopping_) {
        break;
      }
    }
    if (id != 0) {
      write(id);
      const std::lock_guard lock(mutex_);
      is_writing_ = false;
      all_written = to_write_.empty();
      rest_.notify_all();
    } else {
      remove_dropped();
    }
    if (all_written) {
      on_written_();
    }
  }
  remove_dropped();
}

void KeptPrompts::read_folder() {
  std::vector<PromptFolder::File> files = folder_->scan(log_);
  const PromptFolder::Trimmed trimmed = folder_->trim();
  const std::lock_guard lock(mutex_);
  for (PromptFolder::File& file : files) {
    store_.add_file(std::move(file.outline), file.n_bytes, std::move(file.name));
  }
  std::ranges::for_each(trimmed.names, [&](const std::string& name) { store_.forget_file(name); });
  counters_.folder_bytes = trimmed.n_bytes;
}

void KeptPrompts::write(uint64_t id) {
  const Status written = [&]() -> Status {
    try {
      return write_file(id);
    } catch (const std::bad_alloc&) {
      return {ErrorCode::kOutOfMemory, "no memory is left to write a kept prompt"};
    }
  }();
  if (!written.ok()) {
    fail(written);
    set_saved(id, {});
  }
}

// What the new file makes needless goes after it is there.
Status KeptPrompts::write_file(uint64_t id) {
  PromptOutline outline;
  StateBytes bytes;
  {
    const std::lock_guard lock(mutex_);
    const PromptStore::Entry* entry = store_.entry(id);
    if (entry == nullptr) {
      return {};  // a longer one has come
    }
    outline.tokens = entry->outline.tokens;
    bytes = entry->bytes;
  }
  ASSIGN_OR_RETURN(std::string name, folder_->write(outline, bytes));
  set_saved(id, std::move(name));
  bytes = {};
  remove_dropped();
  const PromptFolder::Trimmed trimmed = folder_->trim();
  const std::lock_guard lock(mutex_);
  std::ranges::for_each(trimmed.names, [&](const std::string& file) { store_.forget_file(file); });
  counters_.folder_bytes = trimmed.n_bytes;
  return {};
}

void KeptPrompts::remove_dropped() {
  std::vector<std::string> files;
  {
    const std::lock_guard lock(mutex_);
    files = store_.dropped_files();
  }
  std::ranges::for_each(files, [&](const std::string& file) { folder_->remove(file); });
}

}  // namespace tessera
