#include "api/border.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <limits>
#include <utility>

namespace tessera::api {
namespace {

// A caller's struct is never larger: a size beyond it was never initialised.
constexpr size_t kStructBytesMax = 4096;

constexpr const char* kTextLost = "memory ran out, also for the text of this error";

struct LastError {
  std::string text;
  bool lost = false;  // there was no memory for it
};
thread_local LastError last_error;

// The public numbers follow the engine's list.
static_assert(static_cast<int>(ErrorCode::kOk) == TSR_OK);
static_assert(static_cast<int>(ErrorCode::kInvalidArgument) == TSR_INVALID_ARGUMENT);
static_assert(static_cast<int>(ErrorCode::kNotFound) == TSR_NOT_FOUND);
static_assert(static_cast<int>(ErrorCode::kInvalidData) == TSR_INVALID_DATA);
static_assert(static_cast<int>(ErrorCode::kUnsupported) == TSR_UNSUPPORTED);
static_assert(static_cast<int>(ErrorCode::kDoesNotFit) == TSR_DOES_NOT_FIT);
static_assert(static_cast<int>(ErrorCode::kOutOfMemory) == TSR_OUT_OF_MEMORY);
static_assert(static_cast<int>(ErrorCode::kCacheFull) == TSR_CACHE_FULL);
static_assert(static_cast<int>(ErrorCode::kBusy) == TSR_BUSY);
static_assert(static_cast<int>(ErrorCode::kCancelled) == TSR_CANCELLED);
static_assert(static_cast<int>(ErrorCode::kDeadlineExceeded) == TSR_DEADLINE_EXCEEDED);
static_assert(static_cast<int>(ErrorCode::kDeviceLost) == TSR_DEVICE_LOST);
static_assert(static_cast<int>(ErrorCode::kIo) == TSR_IO);
static_assert(static_cast<int>(ErrorCode::kInternal) == TSR_INTERNAL);

// The engine names settings as flags; callers know them as members.
struct Member {
  std::string_view flag;
  std::string_view name;
};
constexpr Member kMembers[] = {
    {"--batch-size", "n_batch"},
    {"--cache-type-k", "cache_type_k"},
    {"--cache-type-v", "cache_type_v"},
    {"--cpu-isa", "cpu_isa"},
    {"--cpu-mask", "cpu_mask"},
    {"--cpu-range", "cpu_range"},
    {"--cpu-strict", "cpu_strict"},
    {"--ctx-checkpoints", "n_snapshots"},
    {"--ctx-size", "n_ctx"},
    {"--cuts", "n_cuts"},
    {"--device", "devices"},
    {"--device-memory", "device_memory"},
    {"--expert-slots", "expert_slots"},
    {"--kernels", "kernels"},
    {"--n-cpu-moe", "n_cpu_moe"},
    {"--numa", "numa"},
    {"--override-tensor", "override_tensor"},
    {"--parallel", "n_seq_max"},
    {"--split-mode", "split_mode"},
    {"--tensor-split", "tensor_split"},
    {"--threads", "n_threads"},
    {"--ubatch-size", "n_ubatch"},
};

}  // namespace

std::string with_member_names(std::string_view message) {
  std::string text;
  while (!message.empty()) {
    const size_t end = std::min(message.find(' '), message.size());
    const std::string_view word = message.substr(0, end);
    const size_t first = std::min(word.find_first_not_of("('"), word.size());
    const size_t last = std::min(word.find_first_not_of("-abcdefghijklmnopqrstuvwxyz", first), word.size());
    const auto* member = std::ranges::find(kMembers, word.substr(first, last - first), &Member::flag);
    const bool is_flag =
        member != std::end(kMembers) && word.find_first_not_of(",;:.)'", last) == std::string_view::npos;
    text += is_flag ? fmt::format("{}{}{}", word.substr(0, first), member->name, word.substr(last)) : std::string(word);
    text += end < message.size() ? " " : "";
    message.remove_prefix(std::min(end + 1, message.size()));
  }
  return text;
}

tsr_status fail(ErrorCode code, std::string_view message) noexcept {
  try {
    last_error.text = with_member_names(message);
    last_error.lost = false;
  } catch (...) {
    last_error.lost = true;
  }
  return static_cast<tsr_status>(code);
}

tsr_status fail_with_current_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "memory ran out");
  } catch (const std::length_error&) {
    return fail(ErrorCode::kOutOfMemory, "more was asked for than memory can hold");
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, error.what());
  } catch (...) {
    return fail(ErrorCode::kInternal, "an unknown failure");
  }
}

Status missing(const char* argument) {
  return {ErrorCode::kInvalidArgument, fmt::format("{} is NULL", argument)};
}

Result<std::string_view> text_argument(const char* text, size_t n_bytes, const char* argument) {
  if (text == nullptr && n_bytes == 0) {
    return std::string_view();
  }
  TRY(need(text, argument));
  if (n_bytes == TSR_NUL_TERMINATED) {
    return std::string_view(text);
  }
  if (n_bytes > static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max())) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("{} cannot have {} bytes", argument, n_bytes));
  }
  return std::string_view(text, n_bytes);
}

Status check_struct_size(size_t size, size_t least, const char* what) {
  if (size < least || size > kStructBytesMax) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{} has a size of {} bytes, not {} to {}; begin with its _init function, and give sizeof", what,
                        size, least, kStructBytesMax)};
  }
  return {};
}

Status check_result_size(size_t size, const char* what) {
  if (size < sizeof(size_t) || size > kStructBytesMax) {
    return {ErrorCode::kInvalidArgument, fmt::format("struct_size is {}, not {} to {}; give sizeof({})", size,
                                                     sizeof(size_t), kStructBytesMax, what)};
  }
  return {};
}

Status check_field(const char* field, int64_t found, int64_t least, int64_t most) {
  if (found < least || found > most) {
    return {ErrorCode::kInvalidArgument, fmt::format("{} is {}; it must be {} to {}", field, found, least, most)};
  }
  return {};
}

Status check_unknown_members(const void* given, size_t size, size_t known, const char* what) {
  const auto* bytes = static_cast<const char*>(given);
  if (std::any_of(bytes + known, bytes + size, [](char byte) { return byte != 0; })) {
    return {ErrorCode::kUnsupported,
            fmt::format("{} has members set that tessera {} does not know", what, TESSERA_VERSION)};
  }
  return {};
}

char* make_block(size_t n) {
  auto* block = static_cast<char*>(std::malloc(std::max<size_t>(n, 1)));
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  return block;
}

void give_text(std::string_view bytes, char** text, size_t* n_bytes) {
  char* block = make_block(bytes.size() + 1);
  std::ranges::copy(bytes, block);
  block[bytes.size()] = '\0';
  *text = block;
  if (n_bytes != nullptr) {
    *n_bytes = bytes.size();
  }
}

void give_ids(std::span<const int32_t> ids, int32_t** target, size_t* n) {
  auto* block = reinterpret_cast<int32_t*>(make_block(ids.size_bytes()));
  std::ranges::copy(ids, block);
  *target = block;
  *n = ids.size();
}

}  // namespace tessera::api

const char* tsr_last_error() {
  using tessera::api::last_error;
  return last_error.lost ? tessera::api::kTextLost : last_error.text.c_str();
}

const char* tsr_status_name(tsr_status status) {
  // Through a number: C callers may pass any.
  const auto code = static_cast<unsigned>(status);
  return code <= TSR_INTERNAL ? tessera::error_code_name(static_cast<tessera::ErrorCode>(code)).data() : "unknown";
}

const char* tsr_version() {
  return TESSERA_VERSION;
}

void tsr_free(void* block) {
  std::free(block);
}
