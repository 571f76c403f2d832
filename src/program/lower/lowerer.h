#pragma once
// Lowerer: the walk over a program's nodes that lower() makes. Private to program/lower.
//
// For each node and each device on which locate() lets it run, one step is recorded. A value on a device is an
// *instance*: whole values have full rows, cut values the columns of the cuts that the device holds, side by side in
// ascending order; partials one matrix per held cut; expert rows those of the experts that the device holds. Named
// fusions: several products of one input share a launch; a norm or glu whose result feeds integer products writes it
// quantised as well; a reduce takes the residual sum that follows.

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/ops/expert_matmul.h"
#include "kernels/ops/expert_upload.h"
#include "kernels/ops/kv_layout.h"
#include "kernels/ops/rec_layout.h"
#include "program/lower/lower.h"

namespace tessera {

class Lowerer {
 public:
  explicit Lowerer(const LowerInput& input);
  Result<Lowered> run();

 private:
  /// A value on one device.
  struct Instance {
    BufferId buffer = -1;  // f32; -1: only the quantised form exists
    BufferId q8 = -1;      // the same rows quantised; -1: not made yet
    int64_t width = 0;     // floats per row (of one piece, for partials)
    CutMask cuts = 0;      // cut and partial values: which
  };
  using InstanceKey = std::pair<ValueId, int>;

  // Nodes (lower_nodes.cc).
  void lower_node(NodeId id);
  void lower_rms_norm(const Node& node, const RmsNormNode& op);
  void lower_products(NodeId id);
  void lower_affine(const Node& node, const AffineNode& op);
  void lower_reduce(NodeId id, const ReduceNode& op);
  void lower_add(const Node& node);
  void lower_scale(const Node& node, const ScaleNode& op);
  void lower_rope_table(const Node& node, const RopeTableNode& op);
  void lower_rope(const Node& node, const RopeNode& op);
  void lower_append(const Node& node, const AppendNode& op);
  void lower_attention(const Node& node, const AttentionNode& op);
  void lower_glu(const Node& node, const GluNode& op);
  void lower_gather(const Node& node);

  // Nodes with recurrent state, and their kin (lower_recurrent.cc).
  void lower_split_heads(const Node& node, const SplitHeadsNode& op);
  void lower_short_conv(const Node& node, const ShortConvNode& op);
  void lower_delta_gates(const Node& node, const DeltaGatesNode& op);
  void lower_delta_rule(const Node& node, const DeltaRuleNode& op);
  void lower_gated_norm(const Node& node, const GatedNormNode& op);
  std::vector<RecPanel> rec_panels(int32_t layer, int device) const;
  [[nodiscard]] RecFormat rec_format(int32_t layer) const;

  void lower_logits(const Node& node);
  void lower_embeddings(const Node& node);

  /// Cuts that one attention step takes.
  struct AttentionRun {
    std::vector<KvPanel> panels;
    const float* sinks = nullptr;  // as AttentionArgs has them
  };
  [[nodiscard]] std::vector<AttentionRun> attention_runs(const AttentionNode& op, int device) const;

  // Products (lower_products.cc).
  struct Product {
    NodeId node;
    TensorIndex tensor;
    ValueId output;
  };
  /// A MatmulPanel before addresses are known; offsets and strides in floats.
  struct PanelPlan {
    DType dtype;
    const std::byte* weights;
    int64_t rows;
    int64_t columns;
    int64_t column_begin;
    BufferId y;
    int64_t y_offset;
    int64_t y_stride;
  };
  std::vector<Product> products_of(NodeId first) const;
  Instance make_product_instance(ValueId output, int device);
  void plan_panels(const Product& product, int device, const Instance& y, std::vector<PanelPlan>& panels) const;
  void record_products(const std::vector<Product>& products, ValueId input, int device);
  void ensure_q8(ValueId input, int device);
  [[nodiscard]] bool wants_q8(ValueId value, int device) const;
  [[nodiscard]] bool wants_floats(ValueId value, int device) const;

  // Reduces (lower_reduce.cc).
  struct Leaf {
    BufferId buffer;
    int64_t offset;  // floats
    CutRange range;
  };
  std::vector<Leaf> subtree_roots(ValueId partial, int device, bool for_others);
  void record_reduce(ValueId out, int device, const std::vector<Leaf>& leaves, CutRange range, CutMask nonempty,
                     BufferId y, const ReduceNode* epilogue, ValueId residual);

  // Experts (lower_experts.cc).
  /// A panel before addresses are known.
  struct ExpertPanelPlan {
    ExpertPanel panel;
    BufferId y = -1;
  };
  /// The plan behind a value of expert rows; plan -1: it is no such value.
  struct ExpertRowsOf {
    ValueId routing = -1;
    BufferId plan = -1;
    int64_t n_experts = 0;
  };
  ExpertRowsOf expert_rows_of(ValueId id, int device);
  /// Expert rows as products read them; -1: not in this form.
  struct ExpertInput {
    BufferId q8 = -1;
    BufferId floats = -1;
    std::vector<BufferId> buffers;  // those that exist
  };
  ExpertInput expert_input(const std::vector<Product>& products, const Node& node, int device);
  /// Slots of one device for products that share a launch.
  struct SlotPlan {
    std::vector<ExpertPart> parts;
    int64_t n_held = 0;   // experts that the device computes
    int64_t n_slots = 0;  // as many as asked for, but no more than experts
    int64_t slot_bytes = 0;
    BufferId slots = -1;  // -1: nothing is streamed
    BufferId table = -1;
  };
  [[nodiscard]] Status check_experts() const;
  [[nodiscard]] int32_t expert_worker(int32_t layer, int64_t expert) const;
  [[nodiscard]] bool streams_experts(int32_t layer, int device) const;
  [[nodiscard]] std::vector<const std::byte*> expert_addresses(TensorIndex tensor_index, int device) const;
  SlotPlan plan_slots(const std::vector<Product>& products, std::vector<ExpertPanelPlan>& panels, int device);
  void record_upload(const SlotPlan& slots, BufferId plan, int64_t n_experts, int64_t first_rank, int device);
  [[nodiscard]] int64_t max_expert_rows(ValueId routing) const;
  void lower_route(const Node& node, const RouteNode& op);
  void lower_expert_linear(NodeId id);
  void lower_expert_sum(const Node& node);
  void lower_gate_rows(const Node& node, const GateRowsNode& op);
  BufferId replica_product(TensorIndex matrix, ValueId input, int device);
  BufferId ensure_plan(ValueId routing, int32_t layer, int device);
  BufferId gather_tokens(BufferId from, int64_t row_bytes, ValueId routing, int32_t layer, int device);
  Instance& make_expert_rows(ValueId id, ValueId routing, int device, bool with_floats);
  [[nodiscard]] ExpertPanelPlan plan_expert_panel(const Weight& w, int device) const;
  void record_expert_products(const std::vector<Product>& products, const Node& node, int device);

  // Helpers.
  [[nodiscard]] const ValueInfo& value(ValueId id) const { return program_.values[static_cast<size_t>(id)]; }
  [[nodiscard]] const TensorSpec& tensor(TensorIndex t) const { return table_.tensors[static_cast<size_t>(t)]; }
  [[nodiscard]] const KernelTable& kernels(int device) const {
    return *in_.devices[static_cast<size_t>(device)].kernels;
  }
  [[nodiscard]] const float* replica(TensorIndex t, int device) const;
  [[nodiscard]] int64_t max_rows(const ValueInfo& v) const {
    return v.per_output && !v.is_embedding ? in_.shape.n_outputs : in_.shape.n_tokens;
  }
  [[nodiscard]] CutMask held(const ValueInfo& v, int device) const;
  [[nodiscard]] int64_t held_width(const ValueInfo& v, CutMask cuts) const;
  [[nodiscard]] int64_t cut_width(const ValueInfo& v, int cut) const;
  /// Devices on which a node's outputs live.
  [[nodiscard]] std::vector<int> devices_of(const Node& node) const;
  Instance& make_instance(ValueId id, int device, bool with_floats = true);
  Instance& instance(ValueId id, int device);
  /// An instance for an elementwise op: it takes over the input's buffer when nobody else reads that.
  Instance& make_instance_over(ValueId id, ValueId input, int device);
  /// Records the copies of a whole value that locate() asks for.
  void send_copies(ValueId id);
  [[nodiscard]] bool shared_value(ValueId id, int device) const;
  KernelFn kernel(Op op, int device, DType a = DType::kF32, DType b = DType::kF32);
  /// Records one kernel call whose argument struct `make` fills from addresses.
  template <typename Args>
  void record(Op op, int device, std::vector<BufferId> reads, std::vector<BufferId> writes,
              std::function<void(Args&, const Recorder::Addresses&)> make, DType a = DType::kF32,
              DType b = DType::kF32);
  /// Uploads a part of the host's inputs. Row count and width in bytes as in CopyArgs.
  BufferId upload(int device, uint64_t host_offset, uint64_t row_bytes, int64_t max_rows, RowCount count);
  std::vector<KvPanel> kv_panels(int32_t layer, int device) const;
  [[nodiscard]] KvFormat kv_format(int32_t layer) const;
  void upload_inputs();

  const LowerInput& in_;
  const TensorTable& table_;
  const Program& program_;
  KvClasses classes_;
  HostInputLayout host_;
  Locations locations_;
  Recorder recorder_;
  std::map<InstanceKey, Instance> instances_;
  std::map<std::pair<int, uint64_t>, BufferId> uploads_;  // (device, host offset)
  std::map<InstanceKey, std::vector<Leaf>> roots_;        // (partial, device): sub-tree roots ready for others
  std::map<InstanceKey, BufferId> plans_;                 // (routing, device): plan of expert rows
  std::vector<std::vector<NodeId>> consumers_;            // by value
  std::vector<bool> done_;                                // by node: already recorded with an earlier one
  Lowered result_;
  Status error_;
};

template <typename Args>
void Lowerer::record(Op op, int device, std::vector<BufferId> reads, std::vector<BufferId> writes,
                     std::function<void(Args&, const Recorder::Addresses&)> make, DType a, DType b) {
  const KernelFn function = kernel(op, device, a, b);
  ++result_.stats.n_kernels;
  recorder_.step(device, std::move(reads), std::move(writes),
                 [function, op, make = std::move(make)](const Recorder::Addresses& at) {
                   auto args = std::make_shared<Args>();
                   make(*args, at);
                   Command command;
                   command.kernel = function;
                   command.args = std::move(args);
                   command.name = op_name(op);
                   return command;
                 });
}

}  // namespace tessera
