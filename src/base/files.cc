#include "base/files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <memory>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace tessera {
namespace {

// std::strerror is not safe between threads.
std::string reason(int error) {
  return std::generic_category().message(error);
}

ErrorCode code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return ErrorCode::kNotFound;
    case ENOMEM: return ErrorCode::kOutOfMemory;
    default: return ErrorCode::kIo;
  }
}

Status system_error(std::string_view what, const std::string& path, int error) {
  return {code_of(error), fmt::format("cannot {} '{}': {}", what, path, reason(error))};
}

int64_t modified_ns(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

InputFile::~InputFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

void InputFile::swap(InputFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
  std::swap(fd_, other.fd_);
}

Result<InputFile> InputFile::open(const std::string& path) {
  InputFile file;
  file.path_ = path;
  // O_NONBLOCK: opening a pipe must fail below, not wait for a writer.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) {
    return system_error("open", path, errno);
  }
  struct stat info{};
  if (fstat(file.fd_, &info) != 0) {
    return system_error("examine", path, errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is {}, not a file", path, S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe"));
  }
  file.size_ = static_cast<uint64_t>(info.st_size);
  file.modified_ns_ = modified_ns(info);
  return file;
}

Status InputFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  CHECK(offset <= size_ && out.size() <= size_ - offset);
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno != EINTR) {
      return system_error("read", path_, errno);
    }
    if (n == 0) {
      TRY(check_unchanged());
      return {ErrorCode::kIo, fmt::format("cannot read '{}': it ends at byte {}", path_, offset)};
    }
    if (n > 0) {
      out = out.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }
  return {};
}

void InputFile::will_need(uint64_t offset, uint64_t length) const {
  if (fd_ >= 0 && length > 0) {  // a length of 0 would mean the whole file
    posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_WILLNEED);
  }
}

Status InputFile::check_unchanged() const {
  if (fd_ < 0) {
    return {};
  }
  struct stat info{};
  if (fstat(fd_, &info) != 0) {
    return system_error("examine", path_, errno);
  }
  if (static_cast<uint64_t>(info.st_size) != size_) {
    return {ErrorCode::kIo,
            fmt::format("'{}' changed while in use: it had {} bytes and now has {}", path_, size_, info.st_size)};
  }
  if (modified_ns(info) != modified_ns_) {
    return {ErrorCode::kIo, fmt::format("'{}' changed while in use: somebody wrote to it", path_)};
  }
  return {};
}

Result<std::string> read_stream(std::FILE* stream, const std::string& name, uint64_t max_bytes) {
  std::string text;
  std::array<char, 1 << 16> block{};
  while (const size_t n = std::fread(block.data(), 1, block.size(), stream)) {
    if (text.size() + n > max_bytes) {
      return Status(ErrorCode::kDoesNotFit,
                    fmt::format("{} has more than the {} bytes that are read", name, max_bytes));
    }
    text.append(block.data(), n);
  }
  if (std::ferror(stream) != 0) {
    return system_error("read", name, errno);
  }
  return text;
}

Result<std::string> read_file(const std::string& path, uint64_t max_bytes) {
  struct stat info{};
  if (stat(path.c_str(), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode))) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(path.c_str(), "rb"), std::fclose);
    return stream == nullptr ? system_error("open", path, errno) : read_stream(stream.get(), path, max_bytes);
  }
  ASSIGN_OR_RETURN(const InputFile file, InputFile::open(path));
  if (file.size() > max_bytes) {
    return Status(ErrorCode::kDoesNotFit,
                  fmt::format("'{}' has {} bytes, at most {} are read", path, file.size(), max_bytes));
  }
  std::string text(file.size(), '\0');
  TRY(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<FileWriter> FileWriter::create(const std::string& path) {
  std::error_code none;
  std::string target = std::filesystem::canonical(path, none).string();
  target = none ? path : target;
  struct stat info{};
  const bool exists = stat(target.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("'{}' is a folder, not a file", path));
  }
  // Renaming over a device would replace it; over /dev/null that is the end of a system.
  const bool in_place = exists && !S_ISREG(info.st_mode);
  // The process's number: another one may be writing the same file.
  std::string partial = in_place ? target : fmt::format("{}.{}.partial", target, getpid());
  std::FILE* file = std::fopen(partial.c_str(), "wb");
  if (file == nullptr) {
    return system_error("create", target, errno);
  }
  return FileWriter(std::move(target), std::move(partial), file);
}

FileWriter::~FileWriter() {
  if (file_ != nullptr) {
    std::fclose(file_);
    if (!in_place()) {
      std::remove(partial_.c_str());
    }
  }
}

Status FileWriter::append(std::span<const std::byte> bytes) {
  CHECK(file_ != nullptr);
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    return system_error("write", path_, errno);
  }
  return {};
}

Status FileWriter::commit() {
  CHECK(file_ != nullptr);
  // Buffered bytes may only now meet a full disk.
  int error = std::fclose(std::exchange(file_, nullptr)) == 0 ? 0 : errno;
  if (!in_place()) {
    if (error == 0 && std::rename(partial_.c_str(), path_.c_str()) != 0) {
      error = errno;
    }
    if (error != 0) {
      std::remove(partial_.c_str());
    }
  }
  return error == 0 ? Status() : system_error("write", path_, error);
}

Status write_file(const std::string& path, std::string_view content) {
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::create(path));
  TRY(file.append(std::as_bytes(std::span(content))));
  return file.commit();
}

}  // namespace tessera
