#include "kernels/ops/reduce.h"

#include "kernels/kernel_test_util.h"

namespace tessera {
namespace {

class ReduceTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(ReduceTest);

/// The postfix expression of the sum over leaves [begin, end), split at the middle.
void append_tree(std::vector<int8_t>& order, int begin, int end) {
  if (end - begin == 1) {
    order.push_back(static_cast<int8_t>(begin));
    return;
  }
  const int middle = (begin + end) / 2;
  append_tree(order, begin, middle);
  append_tree(order, middle, end);
  order.push_back(kReduceAdd);
}

float tree_sum(std::vector<GuardedRows>& leaves, int begin, int end, int64_t row, int64_t i) {
  if (end - begin == 1) {
    return leaves[static_cast<size_t>(begin)].at(row, i);
  }
  const int middle = (begin + end) / 2;
  return tree_sum(leaves, begin, middle, row, i) + tree_sum(leaves, middle, end, row, i);
}

TEST_P(ReduceTest, AddsInTreeOrderThenScaleBiasResidual) {
  TestRandom random(1);
  const float scale = 1.7F;
  for (int n_leaves = 1; n_leaves <= 8; ++n_leaves) {
    for (const int64_t width : test_widths()) {
      const int parts = static_cast<int>(width % 8);  // which of scale, bias, residual are there
      const int n_tokens = 1 + static_cast<int>(width % 3);
      std::vector<GuardedRows> leaves;
      ReduceArgs args;
      for (int leaf = 0; leaf < n_leaves; ++leaf) {
        leaves.emplace_back(random, n_tokens, width, width + leaf);
      }
      for (GuardedRows& leaf : leaves) {
        args.leaves.push_back({leaf.data(), leaf.stride()});
      }
      append_tree(args.order, 0, n_leaves);
      const std::vector<float> bias = random.normals(width);
      GuardedRows residual(random, n_tokens, width, width + 4);
      GuardedRows expected(n_tokens, width, width + 2);
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t i = 0; i < width; ++i) {
          float v = tree_sum(leaves, 0, n_leaves, t, i);
          v = (parts & 1) != 0 ? v * scale : v;
          v = (parts & 2) != 0 ? v + bias[static_cast<size_t>(i)] : v;
          expected.at(t, i) = (parts & 4) != 0 ? residual.at(t, i) + v : v;
        }
      }
      args.width = width;
      args.scale = (parts & 1) != 0 ? &scale : nullptr;
      args.bias = (parts & 2) != 0 ? bias.data() : nullptr;
      args.residual = (parts & 4) != 0 ? residual.data() : nullptr;
      args.residual_stride = residual.stride();
      for (const int n_threads : {1, 2, 3, 7}) {
        GuardedRows y(n_tokens, width, width + 2);
        args.y = y.data();
        args.y_stride = y.stride();
        run_kernel(kernel(Op::kReduce), args, {n_tokens, 0, 1}, n_threads);
        ASSERT_EQ(y, expected) << n_leaves << " leaves, " << width << " columns, " << n_threads << " threads";
      }
      args.y = leaves[0].data();
      args.y_stride = leaves[0].stride();
      run_kernel(kernel(Op::kReduce), args, {n_tokens, 0, 1}, 3);
      for (int64_t t = 0; t < n_tokens; ++t) {
        ASSERT_EQ(0, std::memcmp(leaves[0].row(t), expected.row(t), static_cast<size_t>(width) * 4)) << "over a leaf";
      }
    }
  }
}

}  // namespace
}  // namespace tessera
