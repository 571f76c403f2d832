#include "runtime/prompt_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <new>
#include <utility>

#include "base/files.h"
#include "base/xxh64.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".state";
constexpr std::string_view kPartialEnding = ".partial";
constexpr size_t kNameBytes = 32 + 1 + 16 + kEnding.size();
constexpr std::chrono::hours kPartialAge{1};  // no write takes so long

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Whether the name, or what it begins with, is one of ours.
bool is_state_name(std::string_view name) {
  return name.size() >= kNameBytes && is_hex(name.substr(0, 32)) && name[32] == '-' && is_hex(name.substr(33, 16)) &&
         name.substr(49, kEnding.size()) == kEnding;
}

struct Found {
  std::string name;
  fs::file_time_type used;
  uint64_t n_bytes = 0;
};

// Files whose names begin as ours, those used least recently first. A folder that cannot be read has none.
std::vector<Found> list_files(const std::string& path) {
  std::vector<Found> files;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    std::error_code gone;  // another server may remove it meanwhile
    if (is_state_name(name) && at->is_regular_file(gone)) {
      const uint64_t n_bytes = at->file_size(gone);
      const fs::file_time_type used = gone ? fs::file_time_type() : at->last_write_time(gone);
      if (!gone) {
        files.push_back({std::move(name), used, n_bytes});
      }
    }
  }
  std::ranges::sort(files, {}, [](const Found& f) { return std::pair(f.used, std::string_view(f.name)); });
  return files;
}

}  // namespace

PromptOutline prompt_outline(const StateShape& shape, StateSequence sequence) {
  PromptOutline outline;
  outline.tokens = std::move(sequence.tokens);
  outline.recurrent = !shape.rec_layers.empty();
  for (size_t l = 0; l < sequence.kv.size(); ++l) {
    if (const int64_t first = sequence.kv[l].first; first > 0) {
      // As KvCache::min_length().
      outline.least_length = std::max(outline.least_length, first + shape.layers[l].window - 1);
    }
  }
  for (const StateRec& snapshot : sequence.snapshots) {
    outline.snapshots.push_back(snapshot.length);
  }
  return outline;
}

Result<StateBytes> allocate_state(uint64_t n_bytes) {
  try {
    return StateBytes{std::make_shared_for_overwrite<std::byte[]>(n_bytes), n_bytes};
  } catch (const std::bad_alloc&) {
    return Status(ErrorCode::kOutOfMemory, fmt::format("no memory is left for the {} bytes of a state", n_bytes));
  }
}

Result<PromptFolder> PromptFolder::open(const std::string& path, StateShape shape, uint64_t max_bytes) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return Status(ErrorCode::kIo, fmt::format("cannot make the folder '{}': {}", path, error.message()));
  }
  PromptFolder folder(path, std::move(shape), max_bytes);
  TRY(FileWriter::create(folder.path_of(folder.model_prefix())).status());  // that it can be written to
  return folder;
}

std::string PromptFolder::model_prefix() const {
  std::string prefix;
  for (const uint8_t byte : shape_.fingerprint) {
    fmt::format_to(std::back_inserter(prefix), "{:02x}", byte);
  }
  return prefix + '-';
}

std::vector<PromptFolder::File> PromptFolder::scan(const Log& log) const {
  std::vector<File> files;
  const std::string prefix = model_prefix();
  for (const Found& found : list_files(path_)) {
    if (found.name.size() > kNameBytes) {
      const bool is_old = fs::file_time_type::clock::now() - found.used > kPartialAge;
      if (found.name.ends_with(kPartialEnding) && is_old) {
        remove(found.name);
      }
      continue;
    }
    if (!found.name.starts_with(prefix)) {
      continue;
    }
    const auto input = InputFile::open(path_of(found.name));
    if (!input.ok()) {
      continue;
    }
    auto outline = read_state_outline(shape_, input->size(),
                                      [&](uint64_t at, std::span<std::byte> out) { return input->read_at(at, out); });
    if (outline.ok()) {
      files.push_back({found.name, prompt_outline(shape_, std::move(*outline)), input->size()});
    } else if (outline.status().code() == ErrorCode::kInvalidData) {
      log.warning(fmt::format("removed '{}': {}", path_of(found.name), outline.status().message()));
      remove(found.name);
    }
  }
  return files;
}

Result<std::string> PromptFolder::write(const PromptOutline& outline, const StateBytes& bytes) const {
  const auto types = static_cast<uint64_t>(shape_.k_type) << 32 | static_cast<uint64_t>(shape_.v_type);
  std::string name =
      fmt::format("{}{:016x}{}", model_prefix(), xxh64(std::as_bytes(std::span(outline.tokens)), types), kEnding);
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::create(path_of(name)));
  TRY(file.append(bytes.span()));
  TRY(file.commit());
  return name;
}

Result<StateBytes> PromptFolder::read(const std::string& name, uint64_t n_bytes) const {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::open(path_of(name)));
  if (file.size() != n_bytes) {
    return Status(ErrorCode::kInvalidData,
                  fmt::format("'{}' has {} bytes; it had {}", file.path(), file.size(), n_bytes));
  }
  ASSIGN_OR_RETURN(StateBytes bytes, allocate_state(n_bytes));
  TRY(file.read_at(0, bytes.span()));
  std::error_code ignored;
  fs::last_write_time(path_of(name), fs::file_time_type::clock::now(), ignored);
  return bytes;
}

void PromptFolder::remove(const std::string& name) const {
  std::error_code ignored;
  fs::remove(path_of(name), ignored);
}

PromptFolder::Trimmed PromptFolder::trim() const {
  Trimmed trimmed;
  std::vector<Found> files = list_files(path_);
  std::erase_if(files, [](const Found& f) { return f.name.size() > kNameBytes; });
  for (const Found& found : files) {
    trimmed.n_bytes += found.n_bytes;
  }
  for (const Found& found : files) {
    if (trimmed.n_bytes <= max_bytes_) {
      break;
    }
    remove(found.name);
    trimmed.n_bytes -= found.n_bytes;
    trimmed.names.push_back(found.name);
  }
  return trimmed;
}

}  // namespace tessera
