#include "kernels/ops/delta_rule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/rec_test_util.h"

namespace tessera {
namespace {

class DeltaRuleTest : public CpuTableTest {};
TESSERA_FOR_CPU_TABLES(DeltaRuleTest);

constexpr float kEps = 1e-6F;

// One token's inputs in the order of the layer.
struct Token {
  std::vector<float> qkv;        // [channels]
  std::vector<float> log_decay;  // [value heads]
  std::vector<float> strength;   // [value heads]
};

Token random_token(TestRandom& random, const RecLayer& layer) {
  Token token;
  token.qkv = random.normals(layer.channels());
  for (int64_t h = 0; h < layer.value_heads(); ++h) {
    token.log_decay.push_back(-std::exp(random.uniform(-6, 1)));
    token.strength.push_back(random.uniform(0, 1));
  }
  return token;
}

// The definition in double for one sequence, with what the tolerance follows from.
class Exact {
 public:
  explicit Exact(const RecFormat& format) : f_(format) {
    state_.resize(static_cast<size_t>(f_.n_key_heads * f_.n_rep * f_.k_dim * f_.v_dim), 0);
    recent_.resize(static_cast<size_t>(f_.n_key_heads * f_.n_rep));
    largest_.resize(recent_.size(), 0);
    errors_.resize(recent_.size(), 0);
  }

  // [value heads, v_dim] in the order of the layer
  std::vector<double> step(const Token& token) {
    std::vector<double> out;
    bound_ = 0;
    for (int64_t h = 0; h < f_.n_key_heads * f_.n_rep; ++h) {
      const int64_t group = f_.tiled ? h % f_.n_key_heads : h / f_.n_rep;
      const std::vector<double> q = unit(token, group * f_.k_dim, 1 / std::sqrt(static_cast<double>(f_.k_dim)));
      const std::vector<double> k = unit(token, (f_.n_key_heads + group) * f_.k_dim, 1);
      const double decay = std::exp(static_cast<double>(token.log_decay[static_cast<size_t>(h)]));
      double most = 0;  // |delta|
      double& largest = largest_[static_cast<size_t>(h)];
      for (int64_t j = 0; j < f_.v_dim; ++j) {
        const double v = token.qkv[static_cast<size_t>(2 * f_.n_key_heads * f_.k_dim + h * f_.v_dim + j)];
        double* s = state_.data() + h * f_.k_dim * f_.v_dim + j;
        double seen = 0;
        for (size_t i = 0; i < k.size(); ++i) {
          s[static_cast<int64_t>(i) * f_.v_dim] *= decay;
          seen += s[static_cast<int64_t>(i) * f_.v_dim] * k[i];
        }
        const double delta = (v - seen) * token.strength[static_cast<size_t>(h)];
        most = std::max(most, std::fabs(delta));
        double answer = 0;
        double squares = 0;
        for (size_t i = 0; i < k.size(); ++i) {
          double& element = s[static_cast<int64_t>(i) * f_.v_dim];
          element += k[i] * delta;
          answer += element * q[i];
          squares += element * element;
        }
        largest = std::max({largest, std::sqrt(squares), std::fabs(v)});
        out.push_back(answer);
      }
      add_errors(h, decay, mixed(h, k), mixed(h, q));
      recent_[static_cast<size_t>(h)].push_back({k, most});
    }
    return out;
  }

  // How far the last token's answers may be off.
  [[nodiscard]] double bound() const { return bound_; }

 private:
  // Each step rounds a column of S, a vector of length <= largest, its sums of k_dim terms and, in a chunk, sums over
  // the deltas before. As |k'| = 1 and strength is at most 1, (1 - strength k' k'^T) * decay shrinks what is wrong
  // already by the decay. The answer is a product with q', of length 1 / sqrt(k_dim), and rounds as much itself.
  void add_errors(int64_t head, double decay, double mixed_k, double mixed_q) {
    const auto h = static_cast<size_t>(head);
    const double step = 2 * kF32Epsilon * static_cast<double>(f_.k_dim + 24) * largest_[h];
    errors_[h] = decay * errors_[h] + step + kF32Epsilon * kDeltaChunk * mixed_k;
    const double answer = (errors_[h] + step) / std::sqrt(static_cast<double>(f_.k_dim));
    bound_ = std::max(bound_, answer + kF32Epsilon * kDeltaChunk * mixed_q);
  }

  [[nodiscard]] std::vector<double> unit(const Token& token, int64_t begin, double scale) const {
    std::vector<double> x(token.qkv.begin() + begin, token.qkv.begin() + begin + f_.k_dim);
    double squares = 0;
    for (const double element : x) {
      squares += element * element;
    }
    for (double& element : x) {
      element *= scale / std::max(std::sqrt(squares), static_cast<double>(kEps));
    }
    return x;
  }

  struct Past {
    std::vector<double> k;
    double delta = 0;
  };

  // Sum of |x.k_s| |delta_s| over the tokens that a chunk can hold before this one.
  [[nodiscard]] double mixed(int64_t head, const std::vector<double>& x) const {
    const std::vector<Past>& past = recent_[static_cast<size_t>(head)];
    double sum = 0;
    for (size_t s = past.size() - std::min<size_t>(past.size(), kDeltaChunk - 1); s < past.size(); ++s) {
      sum += std::fabs(std::inner_product(x.begin(), x.end(), past[s].k.begin(), 0.0)) * past[s].delta;
    }
    return sum;
  }

  RecFormat f_;
  std::vector<double> state_;
  std::vector<std::vector<Past>> recent_;  // by head
  std::vector<double> largest_;            // by head: longest column of S, or value
  std::vector<double> errors_;             // by head: of a column of S
  double bound_ = 0;
};

// Sequences that go through one layer, batch by batch.
class Stream {
 public:
  Stream(const RecFormat& format, std::vector<int64_t> bounds, int64_t n_slots)
      : layer_(format, std::move(bounds), n_slots) {}

  // tokens: by row of the batch. Result: [rows, value heads * v_dim] in the order of the layer.
  std::vector<std::vector<float>> run(KernelFn kernel, const RecBatch& batch, const std::vector<Token>& tokens,
                                      int n_threads) {
    const RecFormat& f = layer_.format();
    const auto n = static_cast<int64_t>(tokens.size());
    const int64_t n_heads = layer_.value_heads();
    GuardedRows qkv(n, layer_.channels(), layer_.channels() + 5);
    GuardedRows decay(n, n_heads, n_heads + 1);
    GuardedRows strength(n, n_heads, n_heads + 1);
    GuardedRows out(n, n_heads * f.v_dim, n_heads * f.v_dim + 3);
    for (int64_t t = 0; t < n; ++t) {
      const Token& token = tokens[static_cast<size_t>(t)];
      for (int64_t c = 0; c < layer_.channels(); ++c) {
        qkv.at(t, layer_.column_of(c)) = token.qkv[static_cast<size_t>(c)];
      }
      for (int64_t h = 0; h < n_heads; ++h) {
        decay.at(t, layer_.place_of(h)) = token.log_decay[static_cast<size_t>(h)];
        strength.at(t, layer_.place_of(h)) = token.strength[static_cast<size_t>(h)];
      }
    }
    DeltaRuleArgs args;
    args.qkv = qkv.data();
    args.qkv_stride = qkv.stride();
    args.log_decay = decay.data();
    args.strength = strength.data();
    args.gate_stride = decay.stride();
    args.out = out.data();
    args.out_stride = out.stride();
    args.eps = kEps;
    args.format = f;
    args.panels = layer_.panels();
    args.rows = {batch.rows.data(), batch.runs.data()};
    run_kernel(kernel, args, batch.sizes(), n_threads);
    EXPECT_TRUE(out.gaps_intact() && layer_.guards_intact());
    std::vector<std::vector<float>> result;
    for (int64_t t = 0; t < n; ++t) {
      std::vector<float> row;
      for (int64_t h = 0; h < n_heads; ++h) {
        const float* head = out.row(t) + layer_.place_of(h) * f.v_dim;
        row.insert(row.end(), head, head + f.v_dim);
      }
      result.push_back(std::move(row));
    }
    return result;
  }

  RecLayer layer_;
};

TEST_P(DeltaRuleTest, FollowsTheDefinitionBatchByBatch) {
  for (const RecFormat& format : rec_formats()) {
    for (const std::vector<int64_t>& bounds : rec_cuts(format.n_key_heads)) {
      for (const int n_threads : {1, 7}) {
        SCOPED_TRACE(testing::Message() << format.k_dim << "/" << format.v_dim << " cuts " << bounds.size() - 1 << " "
                                        << n_threads << " threads");
        TestRandom random(1);
        Stream stream(format, bounds, 3);
        Stream whole(format, {0, format.n_key_heads}, 3);
        std::vector<Exact> exact(3, Exact(format));
        std::vector<int32_t> positions(3, 0);
        for (const std::vector<int32_t>& counts : {std::vector<int32_t>{1, 0, 5}, {1, 3, 0}, {0, 2, 1}}) {
          const RecBatch batch(random, counts, positions);
          std::vector<Token> tokens;
          for (size_t t = 0; t < batch.tokens.size(); ++t) {
            tokens.push_back(random_token(random, stream.layer_));
          }
          const auto out = stream.run(kernel(Op::kDeltaRule), batch, tokens, n_threads);
          ASSERT_EQ(out, whole.run(definition(Op::kDeltaRule), batch, tokens, 1));
          for (size_t t = 0; t < tokens.size(); ++t) {
            const auto slot = static_cast<size_t>(batch.runs[static_cast<size_t>(batch.tokens[t].first)].slot);
            const std::vector<double> want = exact[slot].step(tokens[t]);
            for (size_t i = 0; i < want.size(); ++i) {
              ASSERT_TRUE(within(out[t][i], want[i], exact[slot].bound())) << "token " << t << " element " << i;
            }
          }
          for (size_t s = 0; s < 3; ++s) {
            positions[s] += counts[s];
          }
        }
      }
    }
  }
}

// One sequence, cut into pieces of these lengths.
void expect_pieces(KernelFn kernel, KernelFn definition, const RecFormat& format, const std::vector<Token>& tokens,
                   const std::vector<std::vector<double>>& want, const std::vector<double>& bounds,
                   const std::vector<int32_t>& pieces, double& worst) {
  SCOPED_TRACE(testing::PrintToString(pieces));
  TestRandom random(3);
  Stream stream(format, {0, 1, format.n_key_heads}, 1);
  Stream whole(format, {0, format.n_key_heads}, 1);
  // Equal bits of all tables need not be seen at every length.
  const bool compare = pieces.size() > 1 || pieces[0] % 16 <= 1;
  int32_t done = 0;
  for (const int32_t n : pieces) {
    const RecBatch batch(random, {n}, {done});
    const std::vector<Token> part(tokens.begin() + done, tokens.begin() + done + n);
    const auto out = stream.run(kernel, batch, part, 1 + n % 3);
    if (compare) {
      ASSERT_EQ(out, whole.run(definition, batch, part, 1));
    }
    for (size_t t = 0; t < part.size(); ++t) {
      const size_t at = static_cast<size_t>(done) + t;
      for (size_t i = 0; i < want[at].size(); ++i) {
        worst = std::max(worst, std::fabs(out[t][i] - want[at][i]) / bounds[at]);
        ASSERT_TRUE(within(out[t][i], want[at][i], bounds[at])) << "token " << at << " element " << i;
      }
    }
    done += n;
  }
}

// Chunks and single tokens give the same answers at every length, alone and in pieces: all are held against the
// definition in double, which does not know pieces.
TEST_P(DeltaRuleTest, ChunksAndSingleTokensAgreeAtEveryLength) {
  struct Case {
    RecFormat format;
    std::vector<int32_t> lengths;
  };
  std::vector<int32_t> all(257);
  std::iota(all.begin(), all.end(), 1);
  if (kSanitized) {
    all = {1, 15, 17, 64, 65, 129};
  }
  const int64_t large = kSanitized ? 32 : 128;
  for (const Case& c : {Case{{2, 1, 8, 5, 4, true}, all}, Case{{2, 1, large, large, 4, true}, {16, 65}},
                        Case{{2, 3, 21, 40, 4, false}, {17, 64, 79, 130}}}) {
    TestRandom random(5);
    const RecLayer layer(c.format, {0, c.format.n_key_heads}, 1);
    Exact exact(c.format);
    std::vector<Token> tokens;
    std::vector<std::vector<double>> want;
    std::vector<double> bounds;
    for (int i = 0; i < 257; ++i) {
      tokens.push_back(random_token(random, layer));
      want.push_back(exact.step(tokens.back()));
      bounds.push_back(exact.bound());
    }
    double worst = 0;
    const auto expect = [&](const std::vector<int32_t>& pieces) {
      expect_pieces(kernel(Op::kDeltaRule), definition(Op::kDeltaRule), c.format, tokens, want, bounds, pieces, worst);
    };
    for (const int32_t n : c.lengths) {
      expect({n});
    }
    if (c.format.k_dim < large) {
      expect(std::vector<int32_t>(257, 1));
      expect({1, 16, 15, 64, 17, 3, 128, 13});
    }
    expect({100, 1, 100, 56});
    RecordProperty("worst", std::to_string(worst));
    EXPECT_LT(worst, 1);
    EXPECT_GT(worst, is_scalar() ? 1e-5 : 1e-3);  // a bound far away would see nothing
  }
}

// Queries, keys and states that are all zero, and a state that begins anew in a used slot.
TEST_P(DeltaRuleTest, ZeroStaysZeroAndPositionZeroForgets) {
  const RecFormat format{2, 2, 16, 16, 4, true};
  TestRandom random(2);
  Stream stream(format, {0, 2}, 1);
  Token zeros = random_token(random, stream.layer_);
  std::ranges::fill(zeros.qkv, 0.0F);
  const RecBatch first(random, {2}, {0});
  for (const std::vector<float>& row : stream.run(kernel(Op::kDeltaRule), first, {zeros, zeros}, 1)) {
    EXPECT_EQ(row, std::vector<float>(row.size(), 0.0F));
  }
  const std::vector<Token> tokens = {random_token(random, stream.layer_), random_token(random, stream.layer_)};
  const auto once = stream.run(kernel(Op::kDeltaRule), first, tokens, 1);
  EXPECT_EQ(once, stream.run(kernel(Op::kDeltaRule), first, tokens, 1));
}

}  // namespace
}  // namespace tessera
