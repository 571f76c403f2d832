#include "program/build/builder.h"

#include <fmt/format.h>
#include <utility>

namespace tessera {

Builder::Builder(const TensorTable& table, int64_t n_embd) : table_(table) {
  program_.n_embd = n_embd;
  program_.n_vocab = table.n_vocab;
  program_.kv_layers.resize(table.layers.size());
  program_.rec_layers.resize(table.layers.size());
}

Value Builder::new_value(ValueKind kind, CutAxis axis, int32_t layer, int64_t width, bool per_output) {
  ValueInfo value;
  value.kind = kind;
  value.axis = axis;
  value.layer = layer;
  value.width = width;
  value.per_output = per_output;
  program_.values.push_back(value);
  return {static_cast<ValueId>(program_.values.size() - 1)};
}

Value Builder::add_node(NodeOp op, std::vector<ValueId> inputs, Value output) {
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  if (output.id >= 0) {
    node.outputs.push_back(output.id);
    program_.values[static_cast<size_t>(output.id)].producer = static_cast<NodeId>(program_.nodes.size());
  }
  program_.nodes.push_back(std::move(node));
  return output;
}

Value Builder::fail(std::string message) {
  if (error_.ok()) {
    error_ = Status(ErrorCode::kInvalidData, std::move(message));
  }
  return {};
}

Value Builder::embed(TensorIndex table, float scale) {
  const TensorSpec& spec = table_.tensors[static_cast<size_t>(table)];
  if (spec.columns != program_.n_embd) {
    return fail(fmt::format("tensor {} has {} columns, wanted {}", spec.name, spec.columns, program_.n_embd));
  }
  for (const Node& node : program_.nodes) {
    if (std::holds_alternative<EmbedNode>(node.op)) {
      return fail("a program embeds its tokens once");
    }
  }
  return add_node(EmbedNode{table, scale}, {}, new_value(ValueKind::kWhole, CutAxis::kNone, -1, spec.columns, false));
}

Value Builder::rms_norm(Value x, TensorIndex weight, float eps, int64_t group_width) {
  if (bad(x)) {
    return {};
  }
  const ValueInfo in = info(x);
  const int64_t width = group_width == 0 ? in.width : group_width;
  if (in.kind == ValueKind::kPartial || width <= 0 || in.width % width != 0) {
    return fail(fmt::format("rms_norm over groups of {} does not fit rows of {}", width, in.width));
  }
  if (weight != kNoTensor) {
    const TensorSpec& spec = table_.tensors[static_cast<size_t>(weight)];
    if (spec.columns != width) {
      return fail(fmt::format("tensor {} has {} elements, wanted {}", spec.name, spec.columns, width));
    }
  }
  const Value y = new_value(in.kind, in.axis, in.layer, in.width, in.per_output);
  program_.values.back().is_embedding = in.is_embedding;
  return add_node(RmsNormNode{weight, eps, width}, {x.id}, y);
}

Value Builder::linear(const Weight& w, Value x) {
  if (bad(x)) {
    return {};
  }
  const TensorSpec& spec = table_.tensors[static_cast<size_t>(w.weight)];
  const ValueInfo in = info(x);
  const int64_t groups = table_.n_groups(spec.cut.axis, spec.layer);
  if (w.bias != kNoTensor && table_.tensors[static_cast<size_t>(w.bias)].columns != spec.rows) {
    return fail(fmt::format("tensor {} has {} elements, wanted {}", table_.tensors[static_cast<size_t>(w.bias)].name,
                            table_.tensors[static_cast<size_t>(w.bias)].columns, spec.rows));
  }
  if (w.bias != kNoTensor && spec.cut.segments.size() > 1) {
    return fail(fmt::format("tensor {} has a bias, which is not supported where heads are fused", spec.name));
  }
  if (spec.cut.dim == CutDim::kRows && in.kind == ValueKind::kWhole) {
    if (spec.columns != in.width || groups <= 0 || spec.rows % groups != 0) {
      return fail(fmt::format("tensor {} is [{}, {}], wanted [a multiple of {}, {}]", spec.name, spec.rows,
                              spec.columns, groups, in.width));
    }
    const Value product =
        add_node(LinearNode{w}, {x.id},
                 new_value(ValueKind::kCut, spec.cut.axis, spec.layer, spec.rows / groups, in.per_output));
    if (!w.has_epilogue()) {
      return product;
    }
    return add_node(AffineNode{w.scale, w.bias}, {product.id},
                    new_value(ValueKind::kCut, spec.cut.axis, spec.layer, spec.rows / groups, in.per_output));
  }
  if (spec.cut.dim == CutDim::kColumns && in.kind == ValueKind::kCut && in.axis == spec.cut.axis &&
      in.layer == spec.layer) {
    if (spec.columns != in.width * groups) {
      return fail(fmt::format("tensor {} has {} columns, wanted {}", spec.name, spec.columns, in.width * groups));
    }
    if (in.per_output) {
      return fail(
          fmt::format("tensor {} would multiply outputs cut by columns; reduce() adds rows of tokens", spec.name));
    }
    return add_node(LinearNode{w}, {x.id}, new_value(ValueKind::kPartial, spec.cut.axis, spec.layer, spec.rows, false));
  }
  return fail(fmt::format("tensor {} is cut in a way its input is not", spec.name));
}

Value Builder::reduce(Value partial) {
  if (bad(partial)) {
    return {};
  }
  const ValueInfo in = info(partial);
  if (in.kind != ValueKind::kPartial) {
    return fail("reduce wants a partial");
  }
  const auto* linear = std::get_if<LinearNode>(&program_.nodes[static_cast<size_t>(in.producer)].op);
  const Weight w = linear == nullptr ? Weight{} : linear->w;
  return add_node(ReduceNode{w.scale, w.bias}, {partial.id},
                  new_value(ValueKind::kWhole, CutAxis::kNone, -1, in.width, false));
}

Value Builder::add(Value a, Value b) {
  if (bad(a) || bad(b)) {
    return {};
  }
  const ValueInfo in = info(a);
  if (in.kind != ValueKind::kWhole || info(b).kind != ValueKind::kWhole || info(b).width != in.width ||
      info(b).per_output != in.per_output) {
    return fail(fmt::format("add of rows of {} and {}", in.width, info(b).width));
  }
  return add_node(AddNode{}, {a.id, b.id}, new_value(ValueKind::kWhole, CutAxis::kNone, -1, in.width, in.per_output));
}

Value Builder::scale(Value x, float factor, float softcap) {
  if (bad(x)) {
    return {};
  }
  const ValueInfo in = info(x);
  if (in.kind != ValueKind::kWhole && in.kind != ValueKind::kCut) {
    return fail("scale wants a whole or cut value");
  }
  return add_node(ScaleNode{factor, softcap}, {x.id}, new_value(in.kind, in.axis, in.layer, in.width, in.per_output));
}

RopeRef Builder::rope_table(TensorIndex inv_freq, float magnitude, int64_t head_dim, bool neox) {
  const TensorSpec& spec = table_.tensors[static_cast<size_t>(inv_freq)];
  RopeRef rope;
  rope.n_pairs = spec.columns;
  rope.head_dim = head_dim;
  rope.neox = neox;
  if (2 * spec.columns > head_dim) {
    rope.table = fail(fmt::format("rope of {} dimensions does not fit heads of {}", 2 * spec.columns, head_dim));
    return rope;
  }
  rope.table = add_node(RopeTableNode{inv_freq, magnitude}, {},
                        new_value(ValueKind::kWhole, CutAxis::kNone, -1, 2 * spec.columns, false));
  return rope;
}

void Builder::rope(const RopeRef& rope, std::span<Value* const> heads) {
  Node node;
  node.op = RopeNode{rope.head_dim, rope.n_pairs, rope.neox};
  if (bad(rope.table)) {
    return;
  }
  node.inputs.push_back(rope.table.id);
  for (Value* head : heads) {
    if (bad(*head)) {
      return;
    }
    const ValueInfo in = info(*head);
    if (in.kind != ValueKind::kCut || in.per_output || in.width % rope.head_dim != 0) {
      *head = fail(fmt::format("rope over heads of {} does not fit {} per group", rope.head_dim, in.width));
      return;
    }
    node.inputs.push_back(head->id);
    *head = new_value(in.kind, in.axis, in.layer, in.width, in.per_output);
    node.outputs.push_back(head->id);
    program_.values[static_cast<size_t>(head->id)].producer = static_cast<NodeId>(program_.nodes.size());
  }
  program_.nodes.push_back(std::move(node));
}

Value Builder::append(int32_t layer, const KvLayerSpec& spec, Value k, Value v) {
  if (bad(k) || bad(v)) {
    return {};
  }
  for (const ValueInfo& in : {info(k), info(v)}) {
    if (in.kind != ValueKind::kCut || in.axis != CutAxis::kAttention || in.layer != layer || in.per_output) {
      return fail(fmt::format("layer {}: keys and values must be cut over this layer's heads", layer));
    }
  }
  if (info(k).width != spec.k_dim || info(v).width != spec.v_dim) {
    return fail(fmt::format("layer {}: keys of {} and values of {} per head, wanted {} and {}", layer, info(k).width,
                            info(v).width, spec.k_dim, spec.v_dim));
  }
  program_.kv_layers[static_cast<size_t>(layer)] = spec;
  return add_node(AppendNode{layer}, {k.id, v.id}, new_value(ValueKind::kCache, CutAxis::kAttention, layer, 0, false));
}

Value Builder::attention(Value q, Value cache, float scale, float softcap, TensorIndex sinks) {
  if (bad(q) || bad(cache)) {
    return {};
  }
  const ValueInfo in = info(q);
  const int32_t layer = info(cache).layer;
  const KvLayerSpec& spec = program_.kv_layers[static_cast<size_t>(layer)];
  if (in.kind != ValueKind::kCut || in.axis != CutAxis::kAttention || in.layer != layer || in.per_output ||
      in.width % spec.k_dim != 0) {
    return fail(fmt::format("layer {}: queries of {} per KV head are not heads of {}", layer, in.width, spec.k_dim));
  }
  const int64_t n_rep = in.width / spec.k_dim;
  if (sinks != kNoTensor && table_.tensors[static_cast<size_t>(sinks)].columns != n_rep * spec.n_kv_heads) {
    return fail(fmt::format("layer {}: {} sinks for {} heads", layer,
                            table_.tensors[static_cast<size_t>(sinks)].columns, n_rep * spec.n_kv_heads));
  }
  return add_node(AttentionNode{layer, n_rep, scale, softcap, spec.window, sinks}, {q.id, cache.id},
                  new_value(ValueKind::kCut, CutAxis::kAttention, layer, n_rep * spec.v_dim, false));
}

Value Builder::glu(GluActivation activation, Value gate, Value up, float limit, float alpha) {
  if (bad(gate) || bad(up)) {
    return {};
  }
  const ValueInfo in = info(gate);
  const ValueInfo other = info(up);
  if ((in.kind != ValueKind::kCut && in.kind != ValueKind::kExpertRows) || in.per_output || other.kind != in.kind ||
      other.per_output || other.width != in.width || other.axis != in.axis || other.layer != in.layer) {
    return fail("gate and up are not two cut values, or expert rows, of tokens with one shape");
  }
  return add_node(GluNode{activation, limit, alpha}, {gate.id, up.id},
                  new_value(in.kind, in.axis, in.layer, in.width, false));
}

std::pair<Value, Value> Builder::split_heads(Value x, int64_t head_dim) {
  if (bad(x)) {
    return {};
  }
  const ValueInfo in = info(x);
  if (in.kind != ValueKind::kCut || in.per_output || head_dim < 1 || in.width % (2 * head_dim) != 0) {
    return {fail(fmt::format("{} per group are not heads of two times {}", in.width, head_dim)), {}};
  }
  return add_pair(SplitHeadsNode{head_dim}, {x.id}, in, in.width / 2);
}

// Two outputs of one shape.
std::pair<Value, Value> Builder::add_pair(NodeOp op, std::vector<ValueId> inputs, ValueInfo like, int64_t width) {
  const Value first =
      add_node(std::move(op), std::move(inputs), new_value(like.kind, like.axis, like.layer, width, like.per_output));
  const Value second = new_value(like.kind, like.axis, like.layer, width, like.per_output);
  program_.nodes.back().outputs.push_back(second.id);
  program_.values[static_cast<size_t>(second.id)].producer = info(first).producer;
  return {first, second};
}

// Whether x is a value of tokens, `width` wide per key head of the layer.
bool Builder::is_of_layer(Value x, int32_t layer, int64_t width) const {
  const ValueInfo& in = info(x);
  return in.kind == ValueKind::kCut && in.axis == CutAxis::kAttention && in.layer == layer && !in.per_output &&
         in.width == width;
}

Value Builder::short_conv(int32_t layer, const RecLayerSpec& spec, TensorIndex weight, Value x) {
  if (bad(x)) {
    return {};
  }
  const int64_t width = spec.channels_per_group();
  const TensorSpec& w = table_.tensors[static_cast<size_t>(weight)];
  if (!is_of_layer(x, layer, width) || spec.n_key_heads != table_.n_groups(CutAxis::kAttention, layer) ||
      w.columns != spec.n_taps * width * spec.n_key_heads) {
    return fail(fmt::format("layer {}: the convolution {} of {} elements does not fit {} channels per key head", layer,
                            w.name, w.columns, info(x).width));
  }
  program_.rec_layers[static_cast<size_t>(layer)] = spec;
  return add_node(ShortConvNode{layer, weight}, {x.id},
                  new_value(ValueKind::kCut, CutAxis::kAttention, layer, width, false));
}

std::pair<Value, Value> Builder::delta_gates(int32_t layer, TensorIndex dt_bias, TensorIndex a, Value alpha,
                                             Value beta) {
  if (bad(alpha) || bad(beta)) {
    return {};
  }
  const RecLayerSpec& spec = program_.rec_layers[static_cast<size_t>(layer)];
  if (!is_of_layer(alpha, layer, spec.n_rep) || !is_of_layer(beta, layer, spec.n_rep)) {
    return {fail(fmt::format("layer {}: gates of {} and {} per key head, wanted {}", layer, info(alpha).width,
                             info(beta).width, spec.n_rep)),
            {}};
  }
  return add_pair(DeltaGatesNode{layer, dt_bias, a}, {alpha.id, beta.id}, info(alpha), spec.n_rep);
}

Value Builder::delta_rule(Value qkv, Value log_decay, Value strength, float eps) {
  if (bad(qkv) || bad(log_decay) || bad(strength)) {
    return {};
  }
  const int32_t layer = info(qkv).layer;
  const RecLayerSpec& spec = program_.rec_layers[static_cast<size_t>(layer)];
  if (!is_of_layer(qkv, layer, spec.channels_per_group()) || !is_of_layer(log_decay, layer, spec.n_rep) ||
      !is_of_layer(strength, layer, spec.n_rep)) {
    return fail(fmt::format("layer {}: the delta rule's inputs are not of its heads", layer));
  }
  return add_node(DeltaRuleNode{layer, eps}, {qkv.id, log_decay.id, strength.id},
                  new_value(ValueKind::kCut, CutAxis::kAttention, layer, spec.n_rep * spec.v_dim, false));
}

Value Builder::gated_norm(Value x, Value z, TensorIndex weight, float eps) {
  if (bad(x) || bad(z)) {
    return {};
  }
  const ValueInfo in = info(x);
  const int64_t width = table_.tensors[static_cast<size_t>(weight)].columns;
  if (!is_of_layer(z, in.layer, in.width) || in.kind != ValueKind::kCut || in.width % width != 0) {
    return fail(
        fmt::format("layer {}: heads of {} do not fit {} and {} per group", in.layer, width, in.width, info(z).width));
  }
  return add_node(GatedNormNode{weight, eps}, {x.id, z.id},
                  new_value(in.kind, in.axis, in.layer, in.width, in.per_output));
}

Value Builder::gather_outputs(Value x) {
  if (bad(x)) {
    return {};
  }
  return add_node(GatherOutputsNode{}, {x.id}, new_value(ValueKind::kWhole, CutAxis::kNone, -1, info(x).width, true));
}

void Builder::logits(Value x) {
  if (bad(x)) {
    return;
  }
  if (info(x).kind != ValueKind::kCut || info(x).axis != CutAxis::kHead || !info(x).per_output) {
    fail("logits want outputs cut over the vocabulary");
    return;
  }
  add_node(LogitsNode{}, {x.id}, {});
}

Value Builder::gather_embeddings(Value x) {
  const Value y = gather_outputs(x);
  if (!bad(y)) {
    program_.values[static_cast<size_t>(y.id)].is_embedding = true;
  }
  return y;
}

void Builder::embeddings(Value x) {
  if (bad(x)) {
    return;
  }
  if (info(x).kind != ValueKind::kWhole || !info(x).is_embedding || info(x).width != program_.n_embd) {
    fail("embeddings want whole rows of gather_embeddings()");
    return;
  }
  add_node(EmbeddingsNode{}, {x.id}, {});
}

Result<Program> Builder::finish() && {
  if (!error_.ok()) {
    return error_;
  }
  return std::move(program_);
}

}  // namespace tessera
