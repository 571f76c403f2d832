// `tessera inspect`: what a GGUF file holds, also of architectures that cannot be run.

#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.h"
#include "common.h"
#include "gguf/gguf.h"
#include "gguf/metadata_json.h"
#include "report.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kArrayShown = 8;  // elements of a longer array that are printed
constexpr size_t kStringShown = 80;  // bytes of a longer text that are printed for people

// Scalars as they are; arrays as {"type", "count", "first"}.
Json value_json(const MetaValue& value) {
  Json json = Json::parse(metadata_json(value, kArrayShown));
  if (!value.is_array()) {
    return json;
  }
  return {{"type", meta_type_name(value.elem_type)}, {"count", value.count}, {"first", std::move(json)}};
}

std::string short_text(const Json& value) {
  if (!value.is_string()) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const auto& text = value.get_ref<const std::string&>();
  return text.size() <= kStringShown
             ? quote(text)
             : fmt::format("{}... ({} bytes)", quote(text.substr(0, kStringShown)), text.size());
}

std::string value_text(const MetaValue& value) {
  const Json json = value_json(value);
  if (!value.is_array()) {
    return short_text(json);
  }
  std::string text = "[";
  for (const Json& element : json["first"]) {
    text += (text.size() > 1 ? ", " : "") + short_text(element);
  }
  return text + (value.count > kArrayShown ? fmt::format(", ... {} in all]", value.count) : std::string("]"));
}

std::vector<uint64_t> shape_of(const TensorInfo& tensor) {
  return {tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims};
}

uint64_t n_parameters(const GgufFile& file) {
  uint64_t n = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    n += tensor.n_elems;
  }
  return n;
}

std::string inspect_json(const GgufFile& file) {
  Json metadata = Json::object();
  for (const MetaValue& value : file.metadata().entries()) {
    metadata[std::string(value.key)] = value_json(value);
  }
  Json tensors = Json::array();
  for (const TensorInfo& tensor : file.tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"type", dtype_name(tensor.dtype)},
                       {"shape", shape_of(tensor)},
                       {"bytes", tensor.n_bytes},
                       {"file", tensor.shard},
                       {"offset", tensor.file_offset}});
  }
  const Json report = {{"path", file.path()},
                       {"version", file.version()},
                       {"n_files", file.n_shards()},
                       {"bytes", file.file_bytes()},
                       {"n_tensors", file.tensors().size()},
                       {"n_parameters", n_parameters(file)},
                       {"metadata", metadata},
                       {"tensors", tensors}};
  return report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// One line per tensor, or per type of tensors.
std::string tensor_table(const GgufFile& file, bool each) {
  std::vector<std::vector<std::string>> rows;
  if (each) {
    rows.push_back({"tensor", "type", "shape", "bytes"});
    for (const TensorInfo& tensor : file.tensors()) {
      rows.push_back({quote(tensor.name), std::string(dtype_name(tensor.dtype)),
                      fmt::format("{}", fmt::join(shape_of(tensor), " x ")), std::to_string(tensor.n_bytes)});
    }
    return format_table(rows);
  }
  struct Sum {
    uint64_t n_tensors = 0, n_elems = 0, n_bytes = 0;
  };
  std::map<std::string, Sum> sums;
  for (const TensorInfo& tensor : file.tensors()) {
    Sum& sum = sums[std::string(dtype_name(tensor.dtype))];
    sum.n_tensors += 1;
    sum.n_elems += tensor.n_elems;
    sum.n_bytes += tensor.n_bytes;
  }
  rows.push_back({"type", "tensors", "elements", "bytes"});
  for (const auto& [type, sum] : sums) {
    rows.push_back({type, std::to_string(sum.n_tensors), std::to_string(sum.n_elems), std::to_string(sum.n_bytes)});
  }
  return format_table(rows);
}

std::string inspect_text(const GgufFile& file, bool each_tensor) {
  std::string text = fmt::format("{}: GGUF version {}, {} file{}, {} bytes, {} tensors, {} parameters\n\n", file.path(),
                                 file.version(), file.n_shards(), file.n_shards() == 1 ? "" : "s", file.file_bytes(),
                                 file.tensors().size(), n_parameters(file));
  for (const MetaValue& value : file.metadata().entries()) {
    text += fmt::format("{} ({}) = {}\n", escape(value.key), value.type_text(), value_text(value));
  }
  return text + "\n" + tensor_table(file, each_tensor);
}

}  // namespace

Status cmd_inspect(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(flags.get_string("model")));
  return print(flags.get_bool("json") ? inspect_json(file) : inspect_text(file, flags.get_bool("tensors")));
}

}  // namespace tessera
