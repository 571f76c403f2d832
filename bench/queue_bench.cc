// What a command costs when it does nothing: the fixed price of a step on a CPU device.
//
// Prints, for 1 and 2 threads (or the arguments, each THREADS or THREADS:SPIN_US): nanoseconds per command in a list of
// 400 empty kernels, which is about a decode step of a small model; the time of an empty list while everyone is awake;
// the same after 2 ms of idleness, when every thread sleeps; and what a decode costs beyond its work, when 400 kernels
// of 5 us alternate with 100 us of the engine's own thread (sampling). Medians with the 10th and 90th percentile.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "timing.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

using bench::Spread;

constexpr double kTail = 0.1;  // from the 10th to the 90th percentile

void empty_kernel(void* /*backend*/, const void* /*args*/, const LaunchSizes& /*sizes*/) {}

// Microseconds from submit() until the event after `list` has passed, each round after `idle`.
Spread time_lists(Queue& queue, const std::shared_ptr<const CommandList>& list, std::chrono::microseconds idle) {
  std::vector<double> samples;
  for (int round = 0; round < 300; ++round) {
    if (idle.count() > 0) {
      std::this_thread::sleep_for(idle);
    }
    const auto start = Clock::now();
    queue.submit(list, {});
    queue.record().wait();
    samples.push_back(us_since(start));
  }
  return bench::spread_of(std::move(samples), kTail);
}

void busy_us(double us) {
  for (const auto start = Clock::now(); us_since(start) < us;) {
  }
}

// Microseconds that a step takes beyond the kernels' and the caller's own time.
Spread time_decode(Queue& queue, size_t n_commands) {
  constexpr double kKernelUs = 5;
  constexpr double kCallerUs = 100;
  const Command busy{.kernel = [](void*, const void*, const LaunchSizes&) { busy_us(kKernelUs); },
                     .args = nullptr,
                     .copy = {},
                     .name = "busy"};
  const auto list = std::make_shared<const CommandList>(n_commands, busy);
  std::vector<double> samples;
  for (int round = 0; round < 300; ++round) {
    const auto start = Clock::now();
    queue.submit(list, {});
    queue.record().wait();
    busy_us(kCallerUs);
    samples.push_back(us_since(start) - kCallerUs - kKernelUs * static_cast<double>(n_commands));
  }
  return bench::spread_of(std::move(samples), kTail);
}

// Microseconds from submit() until the queue's thread starts.
Spread time_start(Queue& queue, std::chrono::microseconds idle) {
  std::vector<double> samples;
  for (int round = 0; round < 300; ++round) {
    std::this_thread::sleep_for(idle);
    double started_us = 0;
    const auto start = Clock::now();
    queue.submit_host([&] {
      started_us = us_since(start);
      return Status();
    });
    (void)queue.synchronize();
    samples.push_back(started_us);
  }
  return bench::spread_of(std::move(samples), kTail);
}

void print(int n_threads, const char* what, const Spread& s, double scale, const char* unit) {
  std::printf("%2d threads  %-34s %8.2f %s  (%.2f to %.2f)\n", n_threads, what, s.median * scale, unit, s.low * scale,
              s.high * scale);
}

int run(const char* argument) {
  CpuDeviceOptions options;
  options.n_threads = std::max(1, std::atoi(argument));
  const int n_threads = options.n_threads;
  if (const char* colon = std::strchr(argument, ':'); colon != nullptr) {
    options.spin_us = std::atoi(colon + 1);
  }
  auto devices = make_cpu_devices(options);
  if (!devices.ok()) {
    std::fprintf(stderr, "%s\n", devices.status().message().c_str());
    return 1;
  }
  Queue& queue = (*devices)[0]->compute_queue();
  constexpr size_t kCommands = 400;
  const Command empty{.kernel = empty_kernel, .args = nullptr, .copy = {}, .name = "empty"};
  const auto one = std::make_shared<const CommandList>(1, empty);
  const auto many = std::make_shared<const CommandList>(kCommands, empty);
  time_lists(queue, many, {});  // warm-up
  print(n_threads, "per command in a list of 400", time_lists(queue, many, {}), 1000.0 / kCommands, "ns");
  print(n_threads, "list of one, threads awake", time_lists(queue, one, {}), 1, "us");
  print(n_threads, "submit to start, after 2 ms idle", time_start(queue, std::chrono::milliseconds(2)), 1, "us");
  print(n_threads, "list of one, after 2 ms idle", time_lists(queue, one, std::chrono::milliseconds(2)), 1, "us");
  print(n_threads, "decode step beyond its work", time_decode(queue, kCommands), 1, "us");
  return 0;
}

// Microseconds from the end of a list on one device to the end of a list of one on the next that waits for it, when
// the devices take turns in a ring.
int run_ring(int n_devices, int n_threads) {
  CpuDeviceOptions options;
  options.names.assign(static_cast<size_t>(n_devices), "cpu");
  options.n_threads = n_threads;
  auto devices = make_cpu_devices(options);
  if (!devices.ok()) {
    std::fprintf(stderr, "%s\n", devices.status().message().c_str());
    return 1;
  }
  constexpr int kHops = 300;
  const Command empty{.kernel = empty_kernel, .args = nullptr, .copy = {}, .name = "empty"};
  const auto one = std::make_shared<const CommandList>(1, empty);
  std::vector<double> samples;
  for (int round = 0; round < 30; ++round) {
    Event last;
    const auto start = Clock::now();
    for (int hop = 0; hop < kHops; ++hop) {
      Queue& queue = (*devices)[static_cast<size_t>(hop % n_devices)]->compute_queue();
      queue.wait(last);
      queue.submit(one, {});
      last = queue.record();
    }
    last.wait();
    samples.push_back(us_since(start) / kHops);
  }
  print(n_threads, n_devices == 2 ? "hop between 2 devices" : "hop between 3 devices",
        bench::spread_of(std::move(samples), kTail), 1, "us");
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::vector<const char*> arguments =
      argc > 1 ? std::vector<const char*>(argv + 1, argv + argc) : std::vector<const char*>{"1", "2"};
  for (const char* argument : arguments) {
    if (tessera::run(argument) != 0) {
      return 1;
    }
  }
  return tessera::run_ring(2, 2) + tessera::run_ring(3, 2) + tessera::run_ring(3, 1);
}
