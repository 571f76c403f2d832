#include "runtime/split_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLayer = 0;
constexpr size_t kTensor = 1;

// The reference engine's 70B shape in Q4_K_M on two H200s over NVLink, tokens per second, with a switch of 50 ms.
SplitMeasures h200_70b() {
  SplitMeasures m;
  m.splits[kLayer] = {"layer", {{512, 1204}, {2048, 1877}, {8192, 2128}}, {{1, 44.4}}};
  m.splits[kTensor] = {"tensor", {{512, 1775}, {2048, 1677}, {8192, 1637}}, {{1, 66.3}}};
  m.switch_s = {0.05, 0.05};
  return m;
}

// Its 8B with 1, 2, 4 and 8 sequences, prompts of 2048.
SplitMeasures h200_8b() {
  SplitMeasures m;
  m.splits[kLayer] = {
      "layer", {{512, 9565}, {2048, 14872}, {8192, 16548}}, {{1, 256.5}, {2, 438.1}, {4, 661.7}, {8, 892.1}}};
  m.splits[kTensor] = {
      "tensor", {{512, 11272}, {2048, 9854}, {8192, 9460}}, {{1, 263.6}, {2, 464.9}, {4, 776.5}, {8, 1141.3}}};
  m.switch_s = {0.05, 0.05};
  return m;
}

std::pair<size_t, size_t> choice(const SplitMeasures& m, const SplitCase& request) {
  const SplitDecision d = decide_split(m, request);
  return {d.prefill, d.generation};
}

const std::pair<size_t, size_t> kAllTensor{kTensor, kTensor};
const std::pair<size_t, size_t> kAllLayer{kLayer, kLayer};
const std::pair<size_t, size_t> kLayerThenTensor{kLayer, kTensor};

TEST(SplitPolicy, AShortPromptIsNeverReadUnderLayerOnH200s) {
  for (const int64_t n_predict : {1, 10, 100, 1000, 100000}) {
    EXPECT_EQ(choice(h200_70b(), {kTensor, 512, n_predict}), kAllTensor);
    EXPECT_EQ(choice(h200_8b(), {kTensor, 512, n_predict}), kAllTensor);
  }
  EXPECT_EQ(choice(h200_70b(), {kLayer, 512, 500}), kAllTensor);
}

TEST(SplitPolicy, LongPromptsAreReadUnderLayerAndAnsweredUnderTensorOnH200s) {
  for (const int64_t n_prompt : {2048, 4096, 8192, 32768}) {
    EXPECT_EQ(choice(h200_70b(), {kLayer, n_prompt, 500}), kLayerThenTensor) << n_prompt;
  }
  EXPECT_EQ(choice(h200_70b(), {kTensor, 8192, 500}), kLayerThenTensor);
  EXPECT_EQ(choice(h200_8b(), {kTensor, 8192, 4000}), kLayerThenTensor);
  EXPECT_EQ(choice(h200_8b(), {kTensor, 8192, 128}), kAllLayer);  // 3 % of 128 tokens are no reason to go back
  EXPECT_EQ(choice(h200_8b(), {kTensor, 2048, 128, 8}), kLayerThenTensor);  // eight such prompts share one switch
  EXPECT_EQ(choice(h200_8b(), {kTensor, 2048, 128, 1}), kAllTensor);        // one alone gains 70 ms and pays 100
}

TEST(SplitPolicy, OnlyThoseThatReadHaveAPrompt) {
  const SplitMeasures m = h200_8b();
  const SplitDecision all = decide_split(m, {kTensor, 2048, 128, 8});
  const SplitDecision one = decide_split(m, {kTensor, 2048, 128, 8, 1});
  EXPECT_NEAR(all.stay_s - one.stay_s, 7 * prefill_seconds(m.splits[kTensor], 2048), 1e-9);
  EXPECT_EQ(decide_split(m, {kTensor, 2048, 128, 8, 8}).stay_s, all.stay_s);
}

TEST(SplitPolicy, ASwitchOfSecondsPaysOnlyForLongRequests) {
  SplitMeasures m = h200_70b();
  m.switch_s = {2.21, 2.21};
  EXPECT_EQ(choice(m, {kLayer, 4096, 100}), kAllLayer);
  EXPECT_EQ(choice(m, {kLayer, 16384, 1000}), kLayerThenTensor);
  EXPECT_EQ(choice(m, {kTensor, 16384, 20}), kAllTensor);
}

TEST(SplitPolicy, NearTheBreakEvenTheSplitStays) {
  SplitMeasures m;
  m.splits[0] = {"layer", {{100, 1000}}, {{1, 100}}};
  m.splits[1] = {"tensor", {{100, 1000}}, {{1, 110}}};
  m.switch_s = {0.1, 0.1};
  // 110 tokens take 1.1 s or 1.0 s: exactly the switch.
  for (const size_t now : {0U, 1U}) {
    EXPECT_EQ(choice(m, {now, 100, 110}), std::make_pair(now, now)) << now;
    EXPECT_EQ(choice(m, {now, 100, 130}), std::make_pair(now, now)) << now;
  }
  EXPECT_EQ(choice(m, {0, 100, 400}).second, 1U);
  // A gain within the spread of speeds is none, however long the answer and cheap the switch.
  m.splits[1].generation[0].tokens_per_s = 100.5;
  m.switch_s = {0, 0};
  EXPECT_EQ(choice(m, {0, 100, 1000000}), std::make_pair(size_t{0}, size_t{0}));
}

TEST(SplitPolicy, NothingToDoIsStaying) {
  EXPECT_EQ(choice(h200_70b(), {kLayer, 0, 0}), kAllLayer);
  EXPECT_EQ(choice(h200_70b(), {kTensor, 0, 0}), kAllTensor);
}

TEST(SplitPolicy, AnswersOnlyGainFromWhatIsLeftToRead) {
  // The rest of a long conversation is in the cache: a short message is a short prompt.
  EXPECT_EQ(choice(h200_70b(), {kTensor, 40, 500}), kAllTensor);
}

TEST(SplitPolicy, TimesBetweenAndBeyondWhatWasMeasured) {
  const SplitSpeeds speeds{"layer", {{100, 100}, {300, 150}}, {{1, 10}, {4, 28}}};
  EXPECT_DOUBLE_EQ(prefill_seconds(speeds, 0), 0);
  EXPECT_DOUBLE_EQ(prefill_seconds(speeds, 50), 0.5);
  EXPECT_DOUBLE_EQ(prefill_seconds(speeds, 100), 1);
  EXPECT_DOUBLE_EQ(prefill_seconds(speeds, 200), 1.5);
  EXPECT_DOUBLE_EQ(prefill_seconds(speeds, 300), 2);
  EXPECT_DOUBLE_EQ(prefill_seconds(speeds, 600), 4);
  EXPECT_DOUBLE_EQ(prefill_seconds(speeds, 200, 100), 1);
  EXPECT_DOUBLE_EQ(prefill_seconds(speeds, 300, 300), 2);
  const SplitSpeeds uneven{"layer", {{100, 100}, {101, 1000}}, {{1, 10}}};
  EXPECT_DOUBLE_EQ(prefill_seconds(uneven, 1, 100), 0) << "never less than nothing";
  EXPECT_DOUBLE_EQ(generation_speed(speeds, 1), 10);
  EXPECT_DOUBLE_EQ(generation_speed(speeds, 2), 16);
  EXPECT_DOUBLE_EQ(generation_speed(speeds, 8), 56);
}

TEST(SplitPolicy, TheChoiceIsTheQuickestOfAllFour) {
  const SplitMeasures m = h200_70b();
  for (const size_t now : {kLayer, kTensor}) {
    for (int64_t n_prompt = 1; n_prompt < 40000; n_prompt = n_prompt * 3 / 2 + 1) {
      for (int64_t n_predict = 1; n_predict < 4000; n_predict *= 2) {
        const SplitDecision d = decide_split(m, {now, n_prompt, n_predict});
        EXPECT_LE(d.expected_s, d.stay_s);
        for (const size_t p : {kLayer, kTensor}) {
          for (const size_t g : {kLayer, kTensor}) {
            const double switches = (p != now ? 0.05 : 0) + (g != p ? 0.05 : 0);
            const double seconds = prefill_seconds(m.splits[p], n_prompt) +
                                   static_cast<double>(n_predict) / generation_speed(m.splits[g], 1) + switches;
            // What caution gives away: a quarter of two switches, or a hundredth of staying.
            EXPECT_LE(d.expected_s, seconds + 0.025 + 0.01 * d.stay_s);
          }
        }
      }
    }
  }
}

TEST(SplitPolicy, TheDecisionIsSaidWithItsNumbers) {
  const SplitMeasures m = h200_70b();
  const SplitCase stays{kTensor, 512, 100};
  EXPECT_THAT(decision_text(m, stays, decide_split(m, stays)), HasSubstr("the tensor split stays, 1.797 s"));
  const SplitCase moves{kLayer, 8192, 500};
  EXPECT_THAT(
      decision_text(m, moves, decide_split(m, moves)),
      HasSubstr("8192 tokens to read and about 500 to generate: the prompt under layer, the answer under tensor"));
}

}  // namespace
}  // namespace tessera
