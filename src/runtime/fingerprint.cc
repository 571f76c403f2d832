#include "runtime/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/xxh64.h"

namespace tessera {
namespace {

constexpr uint64_t kSampleBytes = 64;

// Two checksums of everything added, each the seed of its next one.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    low_ = xxh64(bytes, low_);
    high_ = xxh64(bytes, high_);
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  void add(uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }

  [[nodiscard]] ModelFingerprint value() const {
    ModelFingerprint fingerprint;
    std::memcpy(fingerprint.data(), &low_, sizeof low_);
    std::memcpy(fingerprint.data() + sizeof low_, &high_, sizeof high_);
    return fingerprint;
  }

 private:
  uint64_t low_ = 0;
  uint64_t high_ = 1;
};

void add_metadata(const Metadata& metadata, std::string_view architecture, Digest& digest) {
  const std::string prefix = std::string(architecture) + ".";
  std::vector<const MetaValue*> values;
  for (const MetaValue& value : metadata.entries()) {
    if (value.key.starts_with(prefix)) {
      values.push_back(&value);
    }
  }
  std::ranges::sort(values, {}, &MetaValue::key);
  for (const MetaValue* value : values) {
    digest.add(value->key);
    digest.add(static_cast<uint64_t>(value->type));
    digest.add(static_cast<uint64_t>(value->elem_type));
    digest.add(value->count);
    digest.add(value->bytes);
  }
}

Status add_tensor(const GgufFile& file, const TensorInfo& tensor, Digest& digest) {
  digest.add(tensor.name);
  digest.add(static_cast<uint64_t>(tensor.dtype));
  digest.add(tensor.n_dims);
  for (const uint64_t dim : tensor.dims) {
    digest.add(dim);
  }
  std::array<std::byte, kSampleBytes> buffer;
  const std::span<std::byte> sample = std::span(buffer).first(std::min(kSampleBytes, tensor.n_bytes));
  const uint64_t rest = tensor.n_bytes - sample.size();
  for (const uint64_t offset : {uint64_t{0}, rest / 2, rest}) {
    TRY(file.read(tensor, offset, sample));
    digest.add(sample);
  }
  return {};
}

}  // namespace

Result<ModelFingerprint> model_fingerprint(const GgufFile& file) {
  TRY(file.check_unchanged());
  Digest digest;
  ASSIGN_OR_RETURN(const std::string_view architecture, file.metadata().get_string("general.architecture", ""));
  digest.add(architecture);
  add_metadata(file.metadata(), architecture, digest);
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : file.tensors()) {
    tensors.push_back(&tensor);
  }
  std::ranges::sort(tensors, {}, &TensorInfo::name);
  for (const TensorInfo* tensor : tensors) {
    TRY(add_tensor(file, *tensor, digest));
  }
  return digest.value();
}

}  // namespace tessera
