#pragma once
// Files: read-only memory maps and small whole-file reads.
//
// A MappedFile owns its mapping and closes it when destroyed; moving it keeps every pointer into the mapping valid.
// Any thread may read the bytes. A file that is cut shorter by somebody else while it is mapped makes reads beyond its
// new end fatal (that is how mmap works); check_unchanged() tells before large reads whether this happened.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tessera {

/// How a range of a mapping is about to be used.
enum class Access {
  kSequential,  // read once, front to back
  kWillNeed,    // read soon: start bringing the pages in
  kDontNeed,    // not needed any more: the kernel may drop the pages; reading them again is still legal
};

/// A whole file, mapped read-only.
class MappedFile {
 public:
  /// An empty mapping without a file.
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    MappedFile(std::move(other)).swap(*this);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// Maps the regular file at `path`; an empty file gives an empty mapping.
  /// Errors: kNotFound, kInvalidArgument (a folder, a pipe), kIo, kOutOfMemory; each names the path and the system's
  /// reason.
  static Result<MappedFile> open(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

  /// Hints the kernel about [offset, offset + length), clipped to the file and widened to whole pages. Never fails:
  /// a hint that the kernel does not take changes nothing but speed.
  void advise(Access access, uint64_t offset, uint64_t length) const;
  void advise(Access access) const { advise(access, 0, size_); }

  /// kIo when the file's size is no longer what it was when it was mapped.
  [[nodiscard]] Status check_unchanged() const;

 private:
  void swap(MappedFile& other) noexcept;

  std::string path_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  int64_t modified_ns_ = 0;
  int fd_ = -1;
};

/// What a stream gives until its end; `name` is for errors. Errors: kIo; kDoesNotFit above max_bytes.
Result<std::string> read_stream(std::FILE* stream, const std::string& name, uint64_t max_bytes);

/// The whole content of the file, pipe or terminal at `path`. Errors: those of MappedFile::open, and kDoesNotFit above
/// max_bytes.
Result<std::string> read_file(const std::string& path, uint64_t max_bytes);

/// Writes a file front to back and puts it in place only when it is complete: until commit() succeeds, whatever was at
/// the path stays there, and a FileWriter destroyed before leaves nothing behind.
class FileWriter {
 public:
  FileWriter(FileWriter&& other) noexcept : path_(std::move(other.path_)), file_(std::exchange(other.file_, nullptr)) {}
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();

  /// Begins a file beside `path`. Errors: kNotFound (no such folder), kIo.
  static Result<FileWriter> create(const std::string& path);
  /// Appends bytes. Errors: kIo (disk full); then only destruction makes sense.
  Status append(std::span<const std::byte> bytes);
  /// Puts the file in place. Errors: kIo; then nothing was replaced. Nothing may be appended afterwards.
  Status commit();

 private:
  FileWriter(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  [[nodiscard]] std::string partial_path() const { return path_ + ".partial"; }

  std::string path_;
  std::FILE* file_ = nullptr;  // null after commit
};

/// Replaces the file at `path` by `content`: all of it or, on an error (kIo), nothing.
Status write_file(const std::string& path, std::string_view content);

}  // namespace tessera
