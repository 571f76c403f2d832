// Products of expert rows have the bits of plain products of the same rows, on every instruction set, with any share of
// experts held and any number of threads; nothing else is written.

#include "kernels/ops/expert_matmul.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "kernels/kernel_test_util.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/quantize.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

struct Shape {
  DType dtype;
  int64_t rows, columns;
  std::vector<int32_t> tokens;  // by expert: rows of the plan
};

/// Packed experts, activations, scales and biases of one shape.
class Experts {
 public:
  Experts(const CpuTable& table, const Shape& shape, uint32_t seed)
      : shape_(shape), table_(table), random_(seed), begins_(shape.tokens.size() + 1) {
    std::partial_sum(shape.tokens.begin(), shape.tokens.end(), begins_.begin() + 1);
    layout_ = cpu_kernel_table(table.set, table.isa).value()->layout(shape.dtype);
    x_ = std::make_unique<GuardedRows>(random_, n_rows(), shape.columns, shape.columns);
    scale_ = random_.normals(static_cast<int64_t>(shape.tokens.size()));
    for (size_t e = 0; e < shape.tokens.size(); ++e) {
      weights_.push_back(packed());
      bias_.push_back(random_.normals(shape.rows));
    }
    if (layout_->quantized_input) {
      q8_ = std::make_unique<GuardedBytes>(n_rows() * q8_row_bytes(shape.columns));
      const QuantizeArgs args = {x_->data(), x_->stride(), shape.columns, q8_->data(), false};
      run_kernel(find_kernel(table, Op::kQuantize), args, {static_cast<int32_t>(n_rows()), 0, 0});
    }
  }

  [[nodiscard]] int64_t n_rows() const { return begins_.back(); }

  /// Two panels of the same weights, the second with scale and bias.
  void run(GuardedRows& plain, GuardedRows& finished, int n_threads) {
    ExpertMatmulArgs args;
    args.x = x_->data();
    args.q8 = q8_ == nullptr ? nullptr : q8_->data();
    args.begins = begins_.data();
    args.n_experts = static_cast<int64_t>(shape_.tokens.size());
    ExpertPanel panel;
    panel.dtype = shape_.dtype;
    panel.rows = shape_.rows;
    panel.columns = shape_.columns;
    for (size_t e = 0; e < weights_.size(); ++e) {
      panel.weights.push_back(shape_.tokens[e] == 0 ? nullptr : weights_[e]->data());  // not held
    }
    panel.y = plain.data();
    panel.y_stride = plain.stride();
    args.panels.push_back(panel);
    panel.scale = scale_.data();
    for (const std::vector<float>& bias : bias_) {
      panel.bias.push_back(bias.data());
    }
    panel.y = finished.data();
    panel.y_stride = finished.stride();
    args.panels.push_back(panel);
    run_kernel(find_kernel(table_, Op::kExpertMatmul), args, {99, 99, 1}, n_threads);
  }

  /// The same by matmul, expert by expert, row by row.
  void expect(GuardedRows& plain, GuardedRows& finished) {
    for (size_t e = 0; e < weights_.size(); ++e) {
      for (int32_t t = begins_[e]; t < begins_[e + 1]; ++t) {
        MatmulArgs args;
        args.x = x_->row(t);
        args.x_stride = x_->stride();
        args.q8 = q8_ == nullptr ? nullptr : q8_->data() + t * q8_row_bytes(shape_.columns);
        args.q8_columns = shape_.columns;
        args.panels = {
            {shape_.dtype, weights_[e]->data(), shape_.rows, shape_.columns, 0, plain.row(t), plain.stride()}};
        run_kernel(find_kernel(table_, Op::kMatmul), args, {1, 0, 1});
        for (int64_t r = 0; r < shape_.rows; ++r) {
          const float scaled = plain.at(t, r) * scale_[e];
          finished.at(t, r) = scaled + bias_[e][static_cast<size_t>(r)];
        }
      }
    }
  }

 private:
  std::unique_ptr<GuardedBytes> packed() {
    const auto bytes = static_cast<int64_t>(row_bytes(shape_.dtype, static_cast<uint64_t>(shape_.columns)));
    std::vector<std::byte> file(static_cast<size_t>(bytes * shape_.rows));
    std::vector<const std::byte*> rows;
    for (int64_t r = 0; r < shape_.rows; ++r) {
      std::byte* row = file.data() + r * bytes;
      quantize_row(shape_.dtype, random_.normals(shape_.columns).data(), row, shape_.columns);
      rows.push_back(row);
    }
    auto result = std::make_unique<GuardedBytes>(
        static_cast<int64_t>(layout_->packed_bytes(shape_.dtype, shape_.rows, shape_.columns)));
    layout_->pack(shape_.dtype, shape_.columns, rows, result->data());
    return result;
  }

  const Shape shape_;
  const CpuTable table_;
  TestRandom random_;
  const WeightLayout* layout_ = nullptr;
  std::vector<int32_t> begins_;
  std::unique_ptr<GuardedRows> x_;
  std::unique_ptr<GuardedBytes> q8_;
  std::vector<float> scale_;
  std::vector<std::unique_ptr<GuardedBytes>> weights_;
  std::vector<std::vector<float>> bias_;
};

class ExpertMatmulTest : public CpuTableTest {};
TESSERA_FOR_ALL_CPU_TABLES(ExpertMatmulTest);

TEST_P(ExpertMatmulTest, HasTheBitsOfPlainProducts) {
  std::vector<Shape> shapes;
  for (const DTypeInfo& info : dtype_table()) {
    if (can_quantize(info.dtype)) {
      const int64_t columns = std::max<int64_t>(info.block_elems, 64);
      shapes.push_back({info.dtype, 33, columns, {1, 0, 3, 17, 0, 2}});
      shapes.push_back({info.dtype, 16, 2 * columns, {0, 1}});
    }
  }
  shapes.push_back({DType::kF32, 7, 33, {0, 2, 70}});
  shapes.push_back({DType::kF32, 5, 24, {0, 0, 0}});
  uint32_t seed = 1;
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(testing::Message() << dtype_name(shape.dtype) << " " << shape.rows << " x " << shape.columns);
    Experts experts(GetParam(), shape, ++seed);
    const int64_t n = experts.n_rows() + 2;  // two rows that belong to no expert
    GuardedRows plain(n, shape.rows, shape.rows + 3);
    GuardedRows finished(n, shape.rows, shape.rows + 1);
    experts.expect(plain, finished);
    for (const int n_threads : {1, 2, 3, 7}) {
      GuardedRows y(n, shape.rows, shape.rows + 3);
      GuardedRows z(n, shape.rows, shape.rows + 1);
      experts.run(y, z, n_threads);
      ASSERT_EQ(y, plain) << n_threads << " threads";
      ASSERT_EQ(z, finished) << n_threads << " threads";
    }
  }
}

}  // namespace
}  // namespace tessera
