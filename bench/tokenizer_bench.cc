// How fast text becomes tokens and back.
//
//   tokenizer_bench MODEL.gguf TEXT [PRE]...
//
// Prints the time to build the tokenizer, then megabytes per second of encoding and of decoding at least 4 MB made by
// repeating TEXT; PRE: the same again with other families of pre-tokenizers over the file's vocabulary. One thread, the
// best of five runs in thread CPU time, so that a busy machine disturbs the figures little.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "gguf/gguf.h"
#include "runtime/vocab_loader.h"
#include "timing.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

using bench::fastest;
using bench::thread_seconds;

bool measure(const Vocab& vocab, const std::string& text) {
  const double start = thread_seconds();
  auto made = Tokenizer::create(vocab);
  const double build = thread_seconds() - start;
  if (!made.ok()) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", made.status().message().c_str());
    return false;
  }
  const Tokenizer& tokenizer = **made;
  std::vector<int32_t> ids;
  const double encode = fastest(5, [&] { ids = tokenizer.encode(text); });
  const double decode = fastest(5, [&] { tokenizer.decode(ids); });
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::printf("%-8s %-16s build %6.1f ms   encode %6.1f MB/s   decode %6.1f MB/s   %.2f bytes per token\n",
              vocab.model.c_str(), vocab.pre.c_str(), build * 1e3, megabytes / encode, megabytes / decode,
              static_cast<double>(text.size()) / static_cast<double>(std::max<size_t>(ids.size(), 1)));
  return true;
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tokenizer_bench MODEL.gguf TEXT [PRE]...\n");
    return 2;
  }
  const auto file = GgufFile::open(argv[1]);
  if (!file.ok()) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", file.status().message().c_str());
    return 1;
  }
  auto vocab = load_vocab(file->metadata());
  std::ifstream in(argv[2], std::ios::binary);
  std::ostringstream read;
  read << in.rdbuf();
  if (!vocab.ok() || read.str().empty()) {
    std::fprintf(stderr, "tokenizer_bench: no vocabulary in %s or no text in %s\n", argv[1], argv[2]);
    return 1;
  }
  std::string text;
  while (text.size() < 4'000'000) {
    text += read.str();
  }
  bool ok = measure(*vocab, text);
  for (int i = 3; i < argc; ++i) {
    vocab->pre = argv[i];
    ok = measure(*vocab, text) && ok;
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::run(argc, argv);
}
