#pragma once
// Files: reading at any place of a large file, small whole-file reads, and writing all or nothing.
//
// Model files are read, never mapped: a file that somebody cuts short while it is mapped makes the next load from it a
// fatal signal, whereas a read that finds less than it asked for is an error like any other.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tessera {

/// A file open for reading, closed when destroyed. Any thread may read at any time.
class InputFile {
 public:
  /// No file: of size 0.
  InputFile() = default;
  InputFile(InputFile&& other) noexcept { swap(other); }
  InputFile& operator=(InputFile&& other) noexcept {
    InputFile(std::move(other)).swap(*this);
    return *this;
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// Opens the regular file at `path`. Errors: kNotFound, kInvalidArgument (a folder, a pipe), kIo; each names the path
  /// and the system's reason.
  static Result<InputFile> open(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Bytes that the file had when it was opened.
  [[nodiscard]] uint64_t size() const { return size_; }

  /// Fills `out` from the bytes at `offset`. REQUIRES: they lie within size(). Errors: kIo (the system's reason, or the
  /// file has become shorter); then `out` holds anything.
  [[nodiscard]] Status read_at(uint64_t offset, std::span<std::byte> out) const;

  /// Asks the system to bring [offset, offset + length) into its cache ahead of a read. A hint: it cannot fail.
  void will_need(uint64_t offset, uint64_t length) const;

  /// kIo when size or time of change are no longer what they were when the file was opened.
  [[nodiscard]] Status check_unchanged() const;

 private:
  void swap(InputFile& other) noexcept;

  std::string path_;
  uint64_t size_ = 0;
  int64_t modified_ns_ = 0;
  int fd_ = -1;
};

/// What a stream gives until its end; `name` is for errors. Errors: kIo; kDoesNotFit above max_bytes.
Result<std::string> read_stream(std::FILE* stream, const std::string& name, uint64_t max_bytes);

/// The whole content of the file, pipe or terminal at `path`. Errors: those of InputFile, and kDoesNotFit above
/// max_bytes.
Result<std::string> read_file(const std::string& path, uint64_t max_bytes);

/// Writes a file front to back and puts it in place only when it is complete: until commit() succeeds, whatever was at
/// the path stays there, and a FileWriter destroyed before leaves nothing behind.
class FileWriter {
 public:
  FileWriter(FileWriter&& other) noexcept
      : path_(std::move(other.path_)),
        partial_(std::move(other.partial_)),
        file_(std::exchange(other.file_, nullptr)) {}
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();

  /// Begins a file beside `path`; where that is a link, beside what it refers to. A device or pipe is written to
  /// itself, byte by byte. Errors: kNotFound (no such folder), kInvalidArgument (it is a folder), kIo.
  static Result<FileWriter> create(const std::string& path);
  /// Appends bytes. Errors: kIo (disk full); then only destruction makes sense.
  Status append(std::span<const std::byte> bytes);
  /// Puts the file in place. Errors: kIo; then nothing was replaced. Nothing may be appended afterwards.
  Status commit();

 private:
  FileWriter(std::string path, std::string partial, std::FILE* file)
      : path_(std::move(path)), partial_(std::move(partial)), file_(file) {}
  [[nodiscard]] bool in_place() const { return partial_ == path_; }

  std::string path_;
  std::string partial_;        // what is written; path_ for a device or pipe
  std::FILE* file_ = nullptr;  // null after commit
};

/// Replaces the file at `path` by `content`: all of it or, on an error (kIo), nothing.
Status write_file(const std::string& path, std::string_view content);

}  // namespace tessera
