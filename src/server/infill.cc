#include "server/infill.h"

#include <algorithm>
#include <string_view>

namespace tessera {
namespace {

using Ids = std::vector<int32_t>;

// Names that the reference server uses; models have seen some name there.
constexpr std::string_view kProject = "myproject\n";
constexpr std::string_view kThisFile = "filename\n";
constexpr std::string_view kSnippet = "\n\n--- snippet ---\n\n";  // between files, without a token for that

void append(Ids& to, const Ids& ids) {
  to.insert(to.end(), ids.begin(), ids.end());
}

Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.parse_special = false, .add_special = false});
}

void keep_last(Ids& ids, int64_t n) {
  const auto n_kept = static_cast<size_t>(std::max<int64_t>(n, 0));
  ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(std::min(n_kept, ids.size())));
}

void keep_first(Ids& ids, int64_t n) {
  ids.resize(std::min(static_cast<size_t>(std::max<int64_t>(n, 0)), ids.size()));
}

Ids extra_ids(const Tokenizer& tokenizer, const std::vector<InfillFile>& files) {
  Ids ids;
  if (tokenizer.fim_repository()) {
    ids.push_back(*tokenizer.fim_repository());
    append(ids, encode(tokenizer, kProject));
  }
  const auto separate = [&](std::string_view name) {
    ids.push_back(*tokenizer.fim_separator());
    append(ids, encode(tokenizer, name));
  };
  for (const InfillFile& file : files) {
    if (tokenizer.fim_separator()) {
      separate(file.name + "\n");
    } else {
      append(ids, encode(tokenizer, kSnippet));
    }
    append(ids, encode(tokenizer, file.text));
  }
  if (tokenizer.fim_separator()) {
    separate(kThisFile);
  }
  return ids;
}

}  // namespace

Result<std::vector<int32_t>> infill_prompt(const Tokenizer& tokenizer, const InfillText& text, const InfillRoom& room,
                                           bool suffix_first) {
  if (!tokenizer.fim_prefix() || !tokenizer.fim_suffix() || !tokenizer.fim_middle()) {
    return Status(ErrorCode::kUnsupported,
                  "the model has no tokens for prefix, suffix and middle, so it cannot fill in; use one that was "
                  "trained for that, or /completion");
  }
  const Ids prompt = encode(tokenizer, text.prompt);
  Ids prefix = encode(tokenizer, text.prefix);
  Ids suffix = encode(tokenizer, text.suffix);
  const int64_t n_suffix = room.n_near / 4;
  keep_last(prefix, room.n_near - n_suffix);
  keep_first(suffix, n_suffix - std::ssize(prompt));
  Ids near;
  const auto add_prefix = [&] {
    near.push_back(*tokenizer.fim_prefix());
    append(near, prefix);
    append(near, prompt);
  };
  const auto add_suffix = [&] {
    near.push_back(*tokenizer.fim_suffix());
    append(near, suffix);
  };
  if (suffix_first) {
    add_suffix();
    add_prefix();
  } else {
    add_prefix();
    add_suffix();
  }
  near.push_back(*tokenizer.fim_middle());
  Ids ids;
  if (tokenizer.add_bos() && tokenizer.bos()) {
    ids.push_back(*tokenizer.bos());
  }
  Ids extra = extra_ids(tokenizer, text.extra);
  keep_last(extra, room.n_total - std::ssize(near) - std::ssize(ids));
  append(ids, extra);
  append(ids, near);
  return ids;
}

}  // namespace tessera
