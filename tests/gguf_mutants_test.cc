// Thousands of damaged GGUF files through open, a walk over all metadata and the first rows of all tensors. Nothing may
// crash, read outside the file (sanitizers), or allocate beyond the file's size + 64 MiB while opening.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "gguf/gguf.h"
#include "gguf/parse.h"
#include "gguf/raw_gguf.h"
#include "tests/support/allocations.h"
#include "tests/support/gguf_mutator.h"
#include "tests/support/gguf_walk.h"

namespace tessera {
namespace {

constexpr size_t kSlackBytes = 64ULL << 20;

std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_FALSE(text.empty()) << path;
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> tiny(const std::string& name) {
  return read_bytes(std::string(TESSERA_TEST_DATA "/tiny/") + name + ".gguf");
}

// Opens the bytes; the most that was allocated meanwhile is held against the limit.
Result<GgufFile> open_counted(std::span<const std::byte> bytes) {
  reset_peak();
  const size_t before = live_bytes();
  auto file = GgufFile::open_memory(bytes);
  EXPECT_LE(peak_bytes() - before, bytes.size() + kSlackBytes);
  return file;
}

TEST(Allocations, TheHookSeesWhatIsAllocated) {
  reset_peak();
  const size_t before = live_bytes();
  {
    const std::vector<std::byte> block(10 << 20);
  }
  EXPECT_GE(peak_bytes() - before, 10U << 20);
  EXPECT_LT(live_bytes() - before, 1U << 20);
}

TEST(GgufMutants, TheSameSeedGivesTheSameMutantAndOthersDiffer) {
  const GgufMutator mutator(tiny("tiny-llama"));
  const Mutant a = mutator.mutate(5, MutationZone::kHead);
  EXPECT_EQ(a.bytes, mutator.mutate(5, MutationZone::kHead).bytes);
  EXPECT_NE(a.bytes, mutator.mutate(6, MutationZone::kHead).bytes);
}

TEST(GgufMutants, HeadMutantsLeaveTheDataAlone) {
  const auto valid = tiny("tiny-llama");
  const GgufMutator mutator(valid);
  int n_changed = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Mutant mutant = mutator.mutate(seed, MutationZone::kHead);
    n_changed += mutant.bytes != valid ? 1 : 0;
    if (mutant.bytes.size() > mutator.head_bytes() + 64) {  // not cut
      const size_t n = valid.size() - (mutator.head_bytes() + 63) / 32 * 32;
      EXPECT_TRUE(std::equal(valid.end() - static_cast<ptrdiff_t>(n), valid.end(),
                             mutant.bytes.end() - static_cast<ptrdiff_t>(n)))
          << "seed " << seed << ": " << mutant.what;
    }
  }
  EXPECT_GE(n_changed, 95);
}

TEST(GgufMutants, NoneOfThemHarmsTheReader) {
  constexpr uint64_t kSeeds = 3000;  // seven of ten inside the head
  const std::vector<std::string> names = {"tiny-llama",      "tiny-gemma3",     "tiny-qwen35",
                                          "tiny-quantmix-a", "tiny-quantmix-b", "tiny-gpt-oss-mxfp4"};
  std::vector<GgufMutator> mutators;
  for (const std::string& name : names) {
    mutators.emplace_back(tiny(name));
  }
  int n_accepted = 0;
  int n_refused = 0;
  double sum = 0.0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const size_t which = seed % mutators.size();
    const auto zone = seed / mutators.size() % 10 < 7 ? MutationZone::kHead : MutationZone::kAnywhere;
    const Mutant mutant = mutators[which].mutate(seed, zone);
    SCOPED_TRACE(names[which] + " seed " + std::to_string(seed) + ": " + mutant.what);
    // A copy of exactly the mutant's size, so that a read beyond its end is seen.
    const std::vector<std::byte> bytes(mutant.bytes.begin(), mutant.bytes.end());
    const auto file = open_counted(bytes);
    if (file.ok()) {
      ++n_accepted;
      sum += walk_gguf(*file);
    } else {
      ++n_refused;
      EXPECT_LT(file.status().message().size(), 400U) << file.status().message();
      EXPECT_EQ(file.status().message().find('\n'), std::string::npos);
    }
  }
  std::cout << "seeds 0 to " << kSeeds - 1 << ": " << n_accepted << " accepted, " << n_refused << " refused, sum "
            << sum << "\n";
  // Both ways must be walked, or the mutator has lost its point.
  EXPECT_GE(n_accepted, 300);
  EXPECT_GE(n_refused, 1000);
}

// The most entries and tensors that are read at all, each as small as it can be: the worst ratio of bookkeeping to
// bytes.
TEST(GgufMutants, TheSmallestEntriesAndTensorsStayWithinTheLimit) {
  RawGguf raw;
  raw.header(kMaxTensors, kMaxMetaEntries);
  for (uint64_t i = 0; i < kMaxMetaEntries; ++i) {
    raw.entry(std::to_string(i), MetaType::kU8, uint8_t{1});
  }
  for (uint64_t i = 0; i < kMaxTensors; ++i) {
    raw.tensor("a_name_that_does_not_fit_into_a_short_string_" + std::to_string(i), {0}, 0, 0);
  }
  const auto file = open_counted(raw.bytes());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors().size(), kMaxTensors);
  EXPECT_NE(file->find("a_name_that_does_not_fit_into_a_short_string_77777"), nullptr);
}

// Counts that promise far more than follows: refused before anything is reserved for them.
TEST(GgufMutants, PromisesAreNotReservedFor) {
  const std::vector<std::string> lies = {
      RawGguf().header(~0ULL, ~0ULL).str(),
      RawGguf().header(kMaxTensors, kMaxMetaEntries).str(),
      RawGguf().header(0, 1).string("k").type(MetaType::kString).number(1ULL << 30).str(),
      RawGguf().header(0, 1).entry_array("k", MetaType::kString, 1ULL << 30).str(),
      RawGguf().header(0, 1).entry_array("k", MetaType::kF64, 1ULL << 30).str(),
  };
  for (const std::string& lie : lies) {
    reset_peak();
    const size_t before = live_bytes();
    EXPECT_FALSE(GgufFile::open_memory(std::as_bytes(std::span(lie))).ok());
    EXPECT_LE(peak_bytes() - before, 1U << 20);
  }
}

}  // namespace
}  // namespace tessera
