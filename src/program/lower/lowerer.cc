#include "program/lower/lowerer.h"

#include <bit>
#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"

namespace tessera {

Lowerer::Lowerer(const LowerInput& input)
    : in_(input),
      table_(*input.table),
      program_(*input.program),
      classes_(kv_classes(program_)),
      host_(host_input_layout(input.shape, program_.n_embd, classes_.windows.size())),
      locations_(locate(program_, *input.tiles, *input.placement, input.shape.embeddings)),
      recorder_(static_cast<int>(input.devices.size())),
      consumers_(program_.values.size()),
      done_(program_.nodes.size(), false) {
  for (size_t n = 0; n < program_.nodes.size(); ++n) {
    for (const ValueId id : program_.nodes[n].inputs) {
      consumers_[static_cast<size_t>(id)].push_back(static_cast<NodeId>(n));
    }
  }
}

Result<Lowered> Lowerer::run() {
  const size_t n_devices = in_.devices.size();
  TRY(check_experts());
  upload_inputs();
  std::vector<int32_t> upload_segments;
  for (size_t d = 0; d < n_devices; ++d) {
    if (uploads_.lower_bound({static_cast<int>(d), 0}) != uploads_.lower_bound({static_cast<int>(d) + 1, 0})) {
      upload_segments.push_back(recorder_.current_segment(static_cast<int>(d)));
      recorder_.close_segment(static_cast<int>(d));
    }
  }
  for (size_t n = 0; n < program_.nodes.size(); ++n) {
    lower_node(static_cast<NodeId>(n));
    TRY(error_);
  }
  std::vector<int32_t> download_segments = std::move(result_.download_segments);
  result_.download_segments.clear();
  recorder_.layout();
  std::vector<std::byte*> bases;
  for (size_t d = 0; d < n_devices; ++d) {
    result_.scratch_bytes.push_back(recorder_.scratch_bytes(static_cast<int>(d)));
    bases.push_back(in_.devices[d].scratch);
  }
  if (in_.count_only) {
    return std::move(result_);
  }
  result_.segments = recorder_.build(bases);
  for (const int32_t segment : upload_segments) {
    result_.upload_segments.push_back(recorder_.position(segment));
  }
  for (const int32_t segment : download_segments) {
    result_.download_segments.push_back(recorder_.position(segment));
  }
  if (result_.embedding_segment >= 0) {
    result_.embedding_segment = recorder_.position(result_.embedding_segment);
  }
  return std::move(result_);
}

const float* Lowerer::replica(TensorIndex t, int device) const {
  const std::byte* base = in_.devices[static_cast<size_t>(device)].replicas;
  return reinterpret_cast<const float*>(base + in_.replicas->offsets[static_cast<size_t>(t)]);
}

CutMask Lowerer::held(const ValueInfo& v, int device) const {
  return held_cuts(*in_.tiles, *in_.placement, v.axis, v.layer, device);
}

int64_t Lowerer::cut_width(const ValueInfo& v, int cut) const {
  return in_.tiles->cuts(v.axis, v.layer).groups(cut).size() * v.width;
}

int64_t Lowerer::held_width(const ValueInfo& v, CutMask cuts) const {
  int64_t width = 0;
  for (CutMask rest = cuts; rest != 0; rest &= rest - 1) {
    width += cut_width(v, std::countr_zero(rest));
  }
  return width;
}

std::vector<int> Lowerer::devices_of(const Node& node) const {
  const ValueId id = node.outputs.empty() ? node.inputs[0] : node.outputs[0];
  const ValueInfo& out = value(id);
  DeviceMask set = 0;
  if (out.kind == ValueKind::kWhole) {
    set = locations_.values[static_cast<size_t>(id)].runs;
  } else {
    set = devices_of_axis(*in_.tiles, *in_.placement, out.axis, out.layer);
  }
  std::vector<int> devices;
  for (; set != 0; set &= set - 1) {
    devices.push_back(std::countr_zero(set));
  }
  return devices;
}

bool Lowerer::shared_value(ValueId id, int device) const {
  for (const ValueCopy& copy : locations_.values[static_cast<size_t>(id)].copies) {
    if (copy.from == device) {
      return true;
    }
  }
  return false;
}

Lowerer::Instance& Lowerer::make_instance(ValueId id, int device, bool with_floats) {
  const ValueInfo& v = value(id);
  Instance instance;
  instance.width = v.width;
  if (v.kind == ValueKind::kCut) {
    instance.cuts = held(v, device);
    instance.width = held_width(v, instance.cuts);
  }
  const int64_t bytes = max_rows(v) * instance.width * static_cast<int64_t>(sizeof(float));
  if (with_floats) {
    instance.buffer = shared_value(id, device) ? recorder_.shared(device, bytes) : recorder_.scratch(device, bytes);
  }
  return instances_[{id, device}] = instance;
}

Lowerer::Instance& Lowerer::make_instance_over(ValueId id, ValueId input, int device) {
  const Instance x = instance(input, device);
  if (consumers_[static_cast<size_t>(input)].size() > 1 || shared_value(input, device) || shared_value(id, device)) {
    return make_instance(id, device);
  }
  Instance& y = make_instance(id, device, /*with_floats=*/false);
  y.buffer = x.buffer;
  return y;
}

Lowerer::Instance& Lowerer::instance(ValueId id, int device) {
  const auto it = instances_.find({id, device});
  CHECK(it != instances_.end());
  return it->second;
}

KernelFn Lowerer::kernel(Op op, int device, DType a, DType b) {
  const KernelFn function = kernels(device).find(op, a, b);
  if (function == nullptr && error_.ok()) {
    error_ = Status(
        ErrorCode::kUnsupported,
        fmt::format(
            "kernel class {} has no {} for {} and {}{}", kernels(device).kernel_class(), op_name(op), dtype_name(a),
            dtype_name(b),
            op == Op::kAppendKv || op == Op::kAttention ? "; choose other --cache-type-k / --cache-type-v" : ""));
  }
  return function;
}

void Lowerer::send_copies(ValueId id) {
  const ValueInfo& v = value(id);
  for (const ValueCopy& copy : locations_.values[static_cast<size_t>(id)].copies) {
    const BufferId from = instance(id, copy.from).buffer;
    const BufferId to = make_instance(id, copy.to).buffer;
    const auto row = static_cast<uint64_t>(v.width) * sizeof(float);
    const RowCount count = v.per_output ? RowCount::kOutputs : RowCount::kTokens;
    recorder_.step(copy.to, {from}, {to}, [=](const Recorder::Addresses& at) {
      Command command;
      command.copy = {at.bytes(to), at.bytes(from), row, row, row, 1, count};
      command.name = "copy value";
      return command;
    });
    ++result_.stats.n_copies;
    result_.stats.copy_floats_per_token += v.width;
  }
}

BufferId Lowerer::upload(int device, uint64_t host_offset, uint64_t row_bytes, int64_t max_rows, RowCount count) {
  const auto key = std::pair(device, host_offset);
  const auto it = uploads_.find(key);
  if (it != uploads_.end()) {
    return it->second;
  }
  const BufferId buffer = recorder_.scratch(device, static_cast<int64_t>(row_bytes) * max_rows);
  const auto host = in_.host_inputs;
  recorder_.step(device, {}, {buffer}, [=](const Recorder::Addresses& at) {
    Command command;
    const std::byte* source = host[static_cast<size_t>(at.parity)] + host_offset;
    command.copy = {at.bytes(buffer), source, row_bytes, row_bytes, row_bytes, static_cast<uint64_t>(max_rows), count};
    command.name = "upload";
    return command;
  });
  uploads_[key] = buffer;
  return buffer;
}

// Everything the host sends goes first, in a segment of its own: when it is done the host may prepare the next batch.
void Lowerer::upload_inputs() {
  const BatchShape& shape = in_.shape;
  constexpr uint64_t kInt = sizeof(int32_t);
  for (const Node& node : program_.nodes) {
    for (const int device : devices_of(node)) {
      const auto tokens = [&](uint64_t offset) { upload(device, offset, kInt, shape.n_tokens, RowCount::kTokens); };
      if (std::holds_alternative<EmbedNode>(node.op)) {
        Instance embedded;
        embedded.width = program_.n_embd;
        embedded.buffer = upload(device, host_.embeddings, static_cast<uint64_t>(program_.n_embd) * sizeof(float),
                                 shape.n_tokens, RowCount::kTokens);
        instances_[{node.outputs[0], device}] = embedded;
      } else if (std::holds_alternative<RopeTableNode>(node.op)) {
        tokens(host_.positions);
      } else if (const auto* append = std::get_if<AppendNode>(&node.op)) {
        tokens(host_.classes[static_cast<size_t>(classes_.of_layer[static_cast<size_t>(append->layer)])].slots);
      } else if (const auto* attention = std::get_if<AttentionNode>(&node.op)) {
        tokens(host_.positions);
        tokens(host_.seq_rows);
        const auto klass = static_cast<size_t>(classes_.of_layer[static_cast<size_t>(attention->layer)]);
        upload(device, host_.classes[klass].page_table, static_cast<uint64_t>(shape.row_pages) * kInt, shape.n_seqs,
               RowCount::kSeqs);
      } else if (std::holds_alternative<ShortConvNode>(node.op) || std::holds_alternative<DeltaRuleNode>(node.op)) {
        tokens(host_.rec_rows);
        upload(device, host_.rec_runs, sizeof(RecRun), shape.n_seqs, RowCount::kSeqs);
      } else if (std::holds_alternative<GatherOutputsNode>(node.op)) {
        if (value(node.outputs[0]).is_embedding) {
          tokens(host_.embedding_rows);  // how many of these count the segment of embeddings knows
        } else {
          upload(device, host_.output_rows, kInt, shape.n_outputs, RowCount::kOutputs);
        }
      }
    }
  }
}

KvFormat Lowerer::kv_format(int32_t layer) const {
  const KvLayerSpec& spec = program_.kv_layers[static_cast<size_t>(layer)];
  return {in_.k_type, in_.v_type, spec.k_dim, spec.v_dim};
}

std::vector<KvPanel> Lowerer::kv_panels(int32_t layer, int device) const {
  std::vector<KvPanel> panels;
  int64_t head = 0;
  const CutMask cuts = held_cuts(*in_.tiles, *in_.placement, CutAxis::kAttention, layer, device);
  for (CutMask rest = cuts; rest != 0; rest &= rest - 1) {
    const int cut = std::countr_zero(rest);
    const int64_t n_heads = in_.tiles->cuts(CutAxis::kAttention, layer).groups(cut).size();
    panels.push_back({in_.kv_bases[static_cast<size_t>(layer * in_.tiles->n_cuts + cut)], n_heads, head});
    head += n_heads;
  }
  return panels;
}

}  // namespace tessera
