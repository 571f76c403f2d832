#include "kernels/ops/attention.h"

#include <algorithm>
#include <numeric>

#include "kernels/cpu/cache_types.h"
#include "kernels/kernel_test_util.h"
#include "kernels/ops/append_kv.h"
#include "tensor/quants.h"

namespace tessera {
namespace {

struct Case {
  DType k_type = DType::kF16;
  DType v_type = DType::kF16;
  int64_t k_dim = 64;
  int64_t v_dim = 64;
  int64_t n_kv_heads = 3;
  int64_t n_rep = 3;
  float softcap = 0;
  int64_t window = 0;
  bool sinks = false;
  float q_deviation = 1;
  std::vector<int64_t> lengths = {45};  // positions of each sequence
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << dtype_name(c.k_type) << "/" << dtype_name(c.v_type) << " dims " << c.k_dim << "," << c.v_dim << " heads "
      << c.n_kv_heads << "x" << c.n_rep << " cap " << c.softcap << " window " << c.window << " sinks " << c.sinks
      << " lengths";
  for (const int64_t length : c.lengths) {
    out << " " << length;
  }
  return out;
}

/// A query token of a batch.
struct Token {
  int32_t sequence;
  int32_t position;
};

/// Sequences in a cache of one or two panels; pages start as NaN and lie in shuffled order.
class Cache {
 public:
  Cache(const Case& c, uint32_t seed, std::vector<int64_t> panel_heads, uint32_t page_seed)
      : case_(c), pages_per_sequence_(*std::max_element(c.lengths.begin(), c.lengths.end()) / kPageTokens + 1) {
    const auto n_sequences = static_cast<int64_t>(c.lengths.size());
    const int64_t n_pages = n_sequences * pages_per_sequence_;
    table_.resize(static_cast<size_t>(n_pages));
    std::iota(table_.begin(), table_.end(), 0);
    std::mt19937 engine(page_seed);
    std::shuffle(table_.begin(), table_.end(), engine);

    format_ = {c.k_type, c.v_type, c.k_dim, c.v_dim};
    int64_t head_begin = 0;
    for (const int64_t heads : panel_heads) {
      memory_.emplace_back(static_cast<size_t>(n_pages * kv_page_bytes(format_, heads)), std::byte{0xFF});
      panels_.push_back({memory_.back().data(), heads, head_begin});
      head_begin += heads;
    }
    TestRandom random(seed);
    for (int64_t s = 0; s < n_sequences; ++s) {
      append(random, s, c.lengths[static_cast<size_t>(s)]);
    }
    q_all_ = random.normals(n_sequences * (pages_per_sequence_ * kPageTokens) * q_width(), c.q_deviation);
    sinks_ = random.normals(c.n_kv_heads * c.n_rep, 2);
  }

  [[nodiscard]] int64_t q_width() const { return case_.n_kv_heads * case_.n_rep * case_.k_dim; }
  [[nodiscard]] int64_t out_width() const { return case_.n_kv_heads * case_.n_rep * case_.v_dim; }
  [[nodiscard]] const float* query(const Token& t) const {
    return q_all_.data() + (t.sequence * pages_per_sequence_ * kPageTokens + t.position) * q_width();
  }
  int32_t& page(int64_t sequence, int64_t block) {
    return table_[static_cast<size_t>(sequence * pages_per_sequence_ + block)];
  }

  /// Runs a kernel for a batch.
  GuardedRows attend(KernelFn kernel, const std::vector<Token>& batch, int n_threads) {
    const auto n = static_cast<int64_t>(batch.size());
    GuardedRows q(n, q_width(), q_width() + 3);
    GuardedRows out(n, out_width(), out_width() + 5);
    std::vector<int32_t> positions;
    std::vector<int32_t> rows;
    for (int64_t t = 0; t < n; ++t) {
      const Token& token = batch[static_cast<size_t>(t)];
      std::copy_n(query(token), q_width(), q.row(t));
      positions.push_back(token.position);
      rows.push_back(token.sequence);
    }
    AttentionArgs args;
    args.q = q.data();
    args.q_stride = q.stride();
    args.out = out.data();
    args.out_stride = out.stride();
    args.n_rep = case_.n_rep;
    args.format = format_;
    args.panels = panels_;
    args.positions = positions.data();
    args.seq_rows = rows.data();
    args.page_table = table_.data();
    args.page_table_stride = pages_per_sequence_;
    args.scale = scale();
    args.softcap = case_.softcap;
    args.window = case_.window;
    args.sinks = case_.sinks ? sinks_.data() : nullptr;
    run_kernel(kernel, args, {static_cast<int32_t>(n), 0, static_cast<int32_t>(case_.lengths.size())}, n_threads);
    EXPECT_TRUE(out.gaps_intact());
    return out;
  }

  /// Checks one head of one token against softmax in double. The bound: rounding of each dot (dim / 16 + 4 additions,
  /// scale and cap) moves weights by twice the largest error; sums of up to 256 keys and their merging add the rest.
  void expect_exact(const Token& token, int64_t head, const float* out) {
    const int64_t first = case_.window > 0 ? std::max<int64_t>(0, token.position - case_.window + 1) : 0;
    const int64_t kv_head = head / case_.n_rep;
    const float* q = query(token) + head * case_.k_dim;
    std::vector<double> scores;
    double worst = 0;
    for (int64_t j = first; j <= token.position; ++j) {
      const std::vector<float> key = read(token.sequence, j, kv_head, true);
      double dot = 0;
      double magnitude = 0;
      for (int64_t i = 0; i < case_.k_dim; ++i) {
        dot += static_cast<double>(q[i]) * key[static_cast<size_t>(i)];
        magnitude += std::fabs(static_cast<double>(q[i]) * key[static_cast<size_t>(i)]);
      }
      dot *= scale();
      worst = std::max(worst, magnitude * scale() * kF32Epsilon * (static_cast<double>(case_.k_dim) / 16 + 10));
      scores.push_back(case_.softcap > 0 ? case_.softcap * std::tanh(dot / case_.softcap) : dot);
    }
    double max = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    if (case_.sinks) {
      max = std::max(max, static_cast<double>(sinks_[static_cast<size_t>(head)]));
      total = std::exp(sinks_[static_cast<size_t>(head)] - max);
    }
    std::vector<double> sums(static_cast<size_t>(case_.v_dim));
    double largest = 0;
    for (int64_t j = first; j <= token.position; ++j) {
      const double weight = std::exp(scores[static_cast<size_t>(j - first)] - max);
      const std::vector<float> value = read(token.sequence, j, kv_head, false);
      total += weight;
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] += weight * value[i];
        largest = std::max(largest, std::fabs(static_cast<double>(value[i])));
      }
    }
    const auto n_keys = static_cast<double>(std::min<int64_t>(token.position + 1 - first, kAttentionRange));
    const double bound = largest * (2 * worst + kF32Epsilon * (n_keys + 40 + std::fabs(max)));
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_TRUE(within(out[i], sums[i] / total, bound)) << "position " << token.position << " head " << head;
    }
  }

 private:
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(case_.k_dim)); }

  void append(TestRandom& random, int64_t sequence, int64_t length) {
    const int64_t k_width = case_.n_kv_heads * case_.k_dim;
    const int64_t v_width = case_.n_kv_heads * case_.v_dim;
    // Keys with a mean, so that scores differ and the running maximum moves.
    std::vector<float> k = random.normals(length * k_width, 2);
    std::vector<float> v = random.normals(length * v_width);
    std::vector<int32_t> slots;
    for (int64_t j = 0; j < length; ++j) {
      slots.push_back(static_cast<int32_t>(page(sequence, j / kPageTokens) * kPageTokens + j % kPageTokens));
    }
    const AppendKvArgs args{k.data(), k_width, v.data(), v_width, slots.data(), format_, panels_};
    run_kernel(find_kernel({CpuKernelSet::kScalar, CpuIsa::kPortable}, Op::kAppendKv, case_.k_type, case_.v_type), args,
               {static_cast<int32_t>(length), 0, 1});
  }

  std::vector<float> read(int64_t sequence, int64_t j, int64_t kv_head, bool is_key) {
    const auto panel = std::find_if(panels_.begin(), panels_.end(), [&](const KvPanel& p) {
      return kv_head >= p.kv_head_begin && kv_head < p.kv_head_begin + p.n_kv_heads;
    });
    const DType dtype = is_key ? case_.k_type : case_.v_type;
    const int64_t dim = is_key ? case_.k_dim : case_.v_dim;
    const std::byte* base = panel->base + page(sequence, j / kPageTokens) * kv_page_bytes(format_, panel->n_kv_heads) +
                            (is_key ? 0 : kv_k_bytes(format_, panel->n_kv_heads));
    const int64_t place = (kv_head - panel->kv_head_begin) * kPageTokens + j % kPageTokens;
    std::vector<float> row(static_cast<size_t>(dim));
    dequantize_row(dtype, base + place * static_cast<int64_t>(row_bytes(dtype, static_cast<uint64_t>(dim))), row.data(),
                   dim);
    return row;
  }

  Case case_;
  int64_t pages_per_sequence_;
  KvFormat format_;
  std::vector<int32_t> table_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<KvPanel> panels_;
  std::vector<float> q_all_;
  std::vector<float> sinks_;
};

std::vector<Token> last_tokens(const Case& c, int64_t n) {
  std::vector<Token> batch;
  for (size_t s = 0; s < c.lengths.size(); ++s) {
    for (int64_t p = std::max<int64_t>(0, c.lengths[s] - n); p < c.lengths[s]; ++p) {
      batch.push_back({static_cast<int32_t>(s), static_cast<int32_t>(p)});
    }
  }
  return batch;
}

bool same_row(GuardedRows& a, int64_t a_row, GuardedRows& b, int64_t b_row) {
  return std::memcmp(a.row(a_row), b.row(b_row), static_cast<size_t>(a.width()) * sizeof(float)) == 0;
}

class AttentionTest : public CpuTableTest {
 protected:
  /// Everything that must hold for a batch: exact within the bound, equal to the definition with any number of threads,
  /// and each token equal to itself alone.
  static void check(const Case& c, const std::vector<Token>& batch) {
    SCOPED_TRACE(testing::Message() << c << " tokens " << batch.size());
    const KernelFn tested = kernel(Op::kAttention, c.k_type, c.v_type);
    Cache cache(c, 11, {c.n_kv_heads}, 1);
    GuardedRows expected = cache.attend(definition(Op::kAttention, c.k_type, c.v_type), batch, 1);
    for (size_t t = 0; t < batch.size(); t += 1 + batch.size() / 5) {
      for (int64_t head = 0; head < c.n_kv_heads * c.n_rep; ++head) {
        ASSERT_NO_FATAL_FAILURE(
            cache.expect_exact(batch[t], head, expected.row(static_cast<int64_t>(t)) + head * c.v_dim));
      }
    }
    for (const int n_threads : kSanitized ? std::vector<int>{3} : std::vector<int>{1, 2, 3, 7}) {
      ASSERT_EQ(cache.attend(tested, batch, n_threads), expected) << n_threads << " threads";
    }
    for (size_t t = 0; t < batch.size(); t += 1 + batch.size() / 4) {
      GuardedRows alone = cache.attend(tested, {batch[t]}, 2);
      ASSERT_TRUE(same_row(alone, 0, expected, static_cast<int64_t>(t))) << "token " << t << " alone";
    }
    // Another order of pages, and heads cut into two panels.
    Cache moved(c, 11, {c.n_kv_heads / 2, c.n_kv_heads - c.n_kv_heads / 2}, 2);
    ASSERT_EQ(moved.attend(tested, batch, 2), expected) << "other pages and panels";
  }
};
TESSERA_FOR_CPU_TABLES(AttentionTest);

TEST_P(AttentionTest, EveryPairOfTypes) {
  for (const DType k : kCacheTypes) {
    for (const DType v : kCacheTypes) {
      Case c;
      c.k_type = k;
      c.v_type = v;
      c.n_kv_heads = 2;
      c.lengths = {75, 3};
      check(c, last_tokens(c, 7));
    }
  }
}

TEST_P(AttentionTest, DimensionsAndHeads) {
  const std::vector<std::pair<int64_t, int64_t>> dims = {
      {1, 1}, {7, 5}, {8, 8}, {40, 24}, {72, 72}, {80, 80}, {96, 64}, {128, 96}, {192, 128}, {256, 256}, {512, 512}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const auto& [k_dim, v_dim] : dims) {
      Case c;
      c.k_type = c.v_type = dtype;
      c.k_dim = k_dim;
      c.v_dim = v_dim;
      c.n_kv_heads = 1 + k_dim % 2;
      c.n_rep = k_dim > 128 ? 2 : 4;
      check(c, last_tokens(c, 3));
    }
  }
  for (const int64_t n_rep : {1, 2, 9, 37}) {
    Case c;
    c.k_dim = 32;
    c.v_dim = 16;
    c.n_kv_heads = n_rep == 37 ? 1 : 3;
    c.n_rep = n_rep;
    check(c, last_tokens(c, 2));
  }
}

TEST_P(AttentionTest, BatchesAndLengths) {
  for (const int64_t n_tokens : kSanitized ? std::vector<int64_t>{1, 7} : std::vector<int64_t>{1, 2, 7, 33}) {
    for (const int64_t length : {1, 31, 32, 33, 255, 256, 257, 600}) {
      Case c;
      c.n_kv_heads = 1;
      c.n_rep = 2;
      c.k_dim = c.v_dim = 32;
      c.lengths = {length};
      check(c, last_tokens(c, n_tokens));
    }
  }
  Case c;
  c.n_kv_heads = 2;
  c.lengths = {1, 40, 300, 64, 33};
  check(c, last_tokens(c, 1));
  check(c, last_tokens(c, 9));
  std::vector<Token> mixed = last_tokens(c, 6);
  std::shuffle(mixed.begin(), mixed.end(), std::mt19937(5));
  check(c, mixed);
  check(c, {});
}

TEST_P(AttentionTest, WindowsCapsAndSinks) {
  for (const int64_t window : {0, 1, 5, 32, 33, 100, 512}) {
    for (const float cap : {0.0F, 3.0F}) {
      Case c;
      c.n_kv_heads = 2;
      c.n_rep = 2;
      c.k_dim = c.v_dim = 48;
      c.window = window;
      c.softcap = cap;
      c.sinks = window % 2 == 1;
      c.lengths = {kSanitized ? 130 : 330, 20};
      check(c, last_tokens(c, 33));
      check(c, last_tokens(c, 1));
    }
  }
}

TEST_P(AttentionTest, ScoresFarApart) {
  // The largest score of one block lies hundreds above or below that of another: nothing may overflow.
  Case c;
  c.k_type = c.v_type = DType::kF32;
  c.q_deviation = 150;
  c.lengths = {600};
  check(c, last_tokens(c, 9));
}

TEST_P(AttentionTest, NeverReadsPagesBehindTheWindow) {
  Case c;
  c.window = 40;
  c.lengths = {300};
  const std::vector<Token> batch = {{0, 297}, {0, 298}, {0, 299}};
  const KernelFn tested = kernel(Op::kAttention, c.k_type, c.v_type);
  Cache cache(c, 3, {c.n_kv_heads}, 1);
  GuardedRows expected = cache.attend(tested, batch, 1);
  for (int64_t block = 0; block < (297 - 39) / kPageTokens; ++block) {
    cache.page(0, block) = -1;
  }
  EXPECT_EQ(cache.attend(tested, batch, 1), expected);
}

TEST_P(AttentionTest, ATokenIgnoresWhatLaterOnesHold) {
  // A token that is not finite reaches those that see it, and no other, also within one tile of rows.
  Case c;
  c.k_type = c.v_type = DType::kF32;
  c.lengths = {40};
  const KernelFn tested = kernel(Op::kAttention, c.k_type, c.v_type);
  std::vector<Token> batch = last_tokens(c, 8);
  Cache cache(c, 3, {c.n_kv_heads}, 1);
  GuardedRows all = cache.attend(tested, batch, 1);
  Case shorter = c;
  shorter.lengths = {36};  // position 36 and later stay NaN
  Cache torn(shorter, 3, {c.n_kv_heads}, 1);
  Cache whole(shorter, 3, {c.n_kv_heads}, 1);
  GuardedRows clean = whole.attend(tested, {batch.begin(), batch.begin() + 4}, 1);
  GuardedRows with_nan = torn.attend(tested, batch, 1);
  for (int64_t t = 0; t < 4; ++t) {
    EXPECT_TRUE(same_row(clean, t, with_nan, t)) << t;
  }
  EXPECT_TRUE(std::isnan(with_nan.at(4, 0)));
}

TEST_P(AttentionTest, ARangeWithoutAFiniteScoreIsNotEmpty) {
  // Position 256 begins a softmax range, in which its token sees one key, its own, which is not a number.
  Case c;
  c.k_type = c.v_type = DType::kF32;
  c.lengths = {kAttentionRange};
  const KernelFn tested = kernel(Op::kAttention, c.k_type, c.v_type);
  Cache cache(c, 3, {c.n_kv_heads}, 1);
  std::vector<Token> batch = last_tokens(c, 8);
  batch.push_back({0, static_cast<int32_t>(kAttentionRange)});
  GuardedRows all = cache.attend(tested, batch, 1);
  GuardedRows alone = cache.attend(tested, {batch.back()}, 1);
  EXPECT_FALSE(std::isnan(all.at(7, 0)));
  EXPECT_TRUE(std::isnan(all.at(8, 0)));
  EXPECT_TRUE(std::isnan(alone.at(0, 0)));
}

TEST_P(AttentionTest, ManyRowsOfOneHead) {
  // Whole and half-filled vectors of rows, whose blocks are seen by all, some or none of them.
  for (const int64_t n_tokens : kSanitized ? std::vector<int64_t>{3, 9} : std::vector<int64_t>{2, 3, 5, 9, 21}) {
    for (const int64_t window : {0, 50}) {
      Case c;
      c.n_kv_heads = 2;
      c.n_rep = 8;
      c.k_dim = 128;
      c.v_dim = 32;
      c.window = window;
      c.lengths = {301};
      check(c, last_tokens(c, n_tokens));
      check(c, {{0, 300}, {0, 3}, {0, 270}, {0, 64}, {0, 31}});
    }
  }
}

}  // namespace
}  // namespace tessera
