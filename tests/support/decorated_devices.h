#pragma once
// Devices between the engine and the real ones, for tests: they see every command and may delay, change or fail it.

#include <functional>
#include <memory>

#include "device/device.h"
#include "runtime/engine.h"

namespace tessera {

/// Opens what the registry would, and hands each device (index in the order of --device) through `decorate`.
DeviceOpener decorated(std::function<std::unique_ptr<Device>(size_t index, std::unique_ptr<Device> device)> decorate);

/// A queue that hands everything on; the base of those that do not.
class ForwardingQueue : public Queue {
 public:
  explicit ForwardingQueue(Queue& inner) : inner_(inner) {}
  void submit(std::shared_ptr<const CommandList> list, const LaunchSizes& sizes) override {
    inner_.submit(std::move(list), sizes);
  }
  void submit_host(std::function<Status()> fn) override { inner_.submit_host(std::move(fn)); }
  void wait(const Event& event) override { inner_.wait(event); }
  Event record() override { return inner_.record(); }
  Status synchronize() override { return inner_.synchronize(); }

 protected:
  Queue& inner() { return inner_; }

 private:
  Queue& inner_;
};

/// The device with another queue in front of its own.
std::unique_ptr<Device> with_queue(std::unique_ptr<Device> device,
                                   const std::function<std::unique_ptr<Queue>(Queue& inner)>& make_queue);

/// The device with another grid for tiles: with a small one, tiny models have tiles and pages of several units.
std::unique_ptr<Device> with_unit(std::unique_ptr<Device> device, uint64_t unit_bytes);

/// A planted fault: scalar products whose threads split the sum over K instead of the rows, so that sums are grouped by
/// the number of threads. The team's partial sums are added in the order of the threads.
std::unique_ptr<Device> with_split_k(std::unique_ptr<Device> device);

/// A planted fault: the device never waits for events, and everything else has random delays of up to 300 us.
std::unique_ptr<Device> without_waits(std::unique_ptr<Device> device, uint64_t seed);

}  // namespace tessera
