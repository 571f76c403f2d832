#include "program/lower/recorder.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

namespace tessera {
namespace {

constexpr int kDevices = 3;

// A step as the test knows it: what it reads and writes, and where it ended up.
struct Shadow {
  int device;
  std::vector<BufferId> reads;
  BufferId write;
};

// Replays the segments of two consecutive micro-batches of one parity in a random order that respects their waits, on a
// byte map of who wrote what last, and checks that every step finds its inputs.
class Replay {
 public:
  Replay(const std::vector<Segment>& segments, const std::map<std::string, Shadow>& steps,
         const std::map<BufferId, std::pair<uint64_t, uint64_t>>& places, unsigned seed)
      : segments_(segments), steps_(steps), places_(places), random_(seed) {}

  void run(int n_rounds) {
    std::vector<int> next(kDevices, 0);
    std::vector<std::vector<int>> queue(kDevices);  // by device: round * n + segment
    const int n = static_cast<int>(segments_.size());
    for (int round = 0; round < n_rounds; ++round) {
      for (int s = 0; s < n; ++s) {
        queue[static_cast<size_t>(segments_[static_cast<size_t>(s)].device)].push_back(round * n + s);
      }
    }
    std::set<int> done;
    for (;;) {
      std::vector<int> ready;
      bool left = false;
      for (int d = 0; d < kDevices; ++d) {
        const auto& q = queue[static_cast<size_t>(d)];
        if (next[static_cast<size_t>(d)] < static_cast<int>(q.size())) {
          left = true;
          if (can_run(q[static_cast<size_t>(next[static_cast<size_t>(d)])], n, done)) {
            ready.push_back(d);
          }
        }
      }
      if (!left) {
        return;
      }
      ASSERT_FALSE(ready.empty()) << "dead lock";
      const int device = ready[random_() % ready.size()];
      const int job = queue[static_cast<size_t>(device)][static_cast<size_t>(next[static_cast<size_t>(device)]++)];
      execute(job / n, segments_[static_cast<size_t>(job % n)]);
      done.insert(job);
    }
  }

 private:
  bool can_run(int job, int n, const std::set<int>& done) const {
    const Segment& segment = segments_[static_cast<size_t>(job % n)];
    const auto passed = [&](int other) { return other < 0 || done.contains(other); };
    for (const int32_t wait : segment.waits) {
      if (!passed(job / n * n + wait)) {
        return false;
      }
    }
    for (const int32_t wait : segment.waits_previous) {
      if (!passed((job / n - 1) * n + wait)) {
        return false;
      }
    }
    return true;
  }

  void execute(int round, const Segment& segment) {
    for (const Command& command : *segment.commands[0]) {
      const Shadow& step = steps_.at(command.name);
      for (const BufferId id : step.reads) {
        EXPECT_EQ(owner_[places_.at(id).first], std::pair(round, id))
            << "step " << command.name << " of round " << round;
      }
      const auto [begin, end] = places_.at(step.write);
      for (auto it = owner_.lower_bound(begin); it != owner_.end() && it->first < end;) {
        it = owner_.erase(it);
      }
      auto before = owner_.lower_bound(begin);
      if (before != owner_.begin() && places_.at((--before)->second.second).second > begin) {
        owner_.erase(before);  // overlapped from below
      }
      owner_[begin] = {round, step.write};
    }
  }

  const std::vector<Segment>& segments_;
  const std::map<std::string, Shadow>& steps_;
  const std::map<BufferId, std::pair<uint64_t, uint64_t>>& places_;  // address range
  std::mt19937 random_;
  std::map<uint64_t, std::pair<int, BufferId>> owner_;  // by begin address: round and buffer written last
};

// Random programs over three devices: no step may find an input overwritten or not yet written, in any order of
// execution that the waits allow, over three micro-batches.
TEST(Recorder, WaitsSufficeAndMemoryIsNeverReusedTooEarly) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Recorder recorder(kDevices);
    std::map<std::string, Shadow> steps;
    std::map<BufferId, std::pair<uint64_t, uint64_t>> places;
    std::vector<std::pair<BufferId, int>> readable;  // buffer, device; shared ones may be read anywhere
    std::map<BufferId, bool> shared;
    std::map<BufferId, int64_t> sizes;
    std::set<std::string> names;
    for (int i = 0; i < 60; ++i) {
      Shadow step;
      step.device = static_cast<int>(random() % kDevices);
      for (int k = 0; k < 2 && !readable.empty(); ++k) {
        const size_t window = std::min<size_t>(readable.size(), 8);
        const auto [id, owner] = readable[readable.size() - 1 - random() % window];
        if (owner == step.device || shared[id]) {
          step.reads.push_back(id);
        }
      }
      const int64_t bytes = 256 * (1 + static_cast<int64_t>(random() % 2));
      const bool is_shared = random() % 3 == 0;
      step.write = is_shared ? recorder.shared(step.device, bytes) : recorder.scratch(step.device, bytes);
      shared[step.write] = is_shared;
      sizes[step.write] = bytes;
      const std::string& name = *names.insert("step" + std::to_string(i)).first;
      const BufferId out = step.write;
      const int device = step.device;
      recorder.step(device, step.reads, {out}, [&places, &sizes, out, device, &name](const Recorder::Addresses& at) {
        if (at.parity == 0) {
          const auto begin = reinterpret_cast<uint64_t>(at.bytes(out));
          places[out] = {begin, begin + static_cast<uint64_t>(sizes.at(out))};
        }
        Command command;
        command.name = name.c_str();
        return command;
      });
      readable.emplace_back(step.write, step.device);
      steps[name] = step;
    }
    recorder.layout();
    std::vector<std::byte*> bases;
    for (int d = 0; d < kDevices; ++d) {
      bases.push_back(reinterpret_cast<std::byte*>(uint64_t{1} << (30 + d)));
    }
    const std::vector<Segment> segments = recorder.build(bases);
    for (unsigned order = 0; order < 5; ++order) {
      Replay(segments, steps, places, seed * 100 + order).run(3);
    }
  }
}

TEST(Recorder, OneDeviceNeedsOneSegmentAndReusesMemory) {
  Recorder recorder(1);
  BufferId last = recorder.scratch(0, 1024);
  recorder.step(0, {}, {last}, [](const Recorder::Addresses&) { return Command(); });
  for (int i = 0; i < 50; ++i) {
    const BufferId next = recorder.scratch(0, 1024);
    recorder.step(0, {last}, {next}, [](const Recorder::Addresses&) { return Command(); });
    last = next;
  }
  recorder.layout();
  EXPECT_EQ(recorder.scratch_bytes(0), 2048U);
  const std::vector<Segment> segments = recorder.build({nullptr});
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_TRUE(segments[0].waits.empty());
  EXPECT_EQ(segments[0].commands[0]->size(), 51U);
}

}  // namespace
}  // namespace tessera
