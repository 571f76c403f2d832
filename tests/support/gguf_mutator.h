#pragma once
// Damages GGUF files in ways that depend only on a seed, to see that readers and loaders survive them.
//
// Knows the structure: it walks a valid file once and then changes chosen fields (counts, lengths, types, dims,
// offsets, names, values), moves, repeats or drops whole entries and tensor infos, cuts the file, or flips bits. Some
// changes keep the file well-formed (a key dropped, a row order changed), so that what comes after the reader is
// reached too. Its walk is its own, not the reader's: a fault of the reader must not hide itself.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// Where a file is damaged.
enum class MutationZone {
  kHead,      // header, metadata and tensor infos only
  kAnywhere,  // the data too
};

struct Mutant {
  std::vector<std::byte> bytes;
  std::string what;  // for messages: "n_dims of tensor info 3 := 4294967295; …"
};

class GgufMutator {
 public:
  /// Takes a valid, single-file, little-endian GGUF; damage before that is our own bug and aborts.
  explicit GgufMutator(std::span<const std::byte> valid);

  /// One to three changes; the same for the same file, seed and zone on every machine.
  [[nodiscard]] Mutant mutate(uint64_t seed, MutationZone zone) const;

  /// Bytes before the data section.
  [[nodiscard]] size_t head_bytes() const { return head_bytes_; }

 private:
  friend class MutationRun;
  class Walk;

  // A value in the file that a mutation may overwrite.
  struct Field {
    std::string name;
    size_t offset;
    size_t size;
  };
  // A contiguous entry or tensor info.
  struct Part {
    size_t begin;
    size_t end;
  };

  std::vector<std::byte> valid_;
  std::vector<std::vector<Field>> fields_;  // grouped by kind, so that long arrays do not crowd out the rest
  std::vector<Part> entries_;
  std::vector<Part> infos_;
  std::vector<Part> names_;  // the text of each tensor name
  std::vector<Part> dims_;   // the dims of each tensor
  uint64_t alignment_ = 32;
  size_t head_bytes_ = 0;
};

}  // namespace tessera
