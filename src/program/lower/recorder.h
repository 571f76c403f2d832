#pragma once
// Recorder: collects the steps of one micro-batch, gives their buffers addresses, and derives who waits for whom.
//
// Steps are recorded in program order, each on one device. Steps of a device run in order on its queue, so a scratch
// buffer is simply reused after its last use. A *shared* buffer is read by another device's queue: it exists twice, by
// micro-batch parity, the reader waits for the writer's segment, and its memory is written again only when every reader
// is known to be done. Waits are derived from the buffers that steps read and write, never placed by hand.
//
// A *segment* is a run of steps on one device between waits: what is recorded and replayed as one command list.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "program/lower/locate.h"

namespace tessera {

using BufferId = int32_t;

/// A command list of one device with what it waits for. Segments are submitted in order.
struct Segment {
  int32_t device = 0;
  std::array<std::shared_ptr<const CommandList>, 2> commands;  // by parity
  std::vector<int32_t> waits;                                  // segments of the same micro-batch
  std::vector<int32_t> waits_previous;  // segments of the micro-batch two before, of the same parity
};

class Recorder {
 public:
  /// Where buffers lie in the command lists of one parity.
  struct Addresses {
    int parity = 0;
    std::function<std::byte*(BufferId)> address;
    [[nodiscard]] std::byte* bytes(BufferId id) const { return address(id); }
    [[nodiscard]] float* floats(BufferId id) const { return reinterpret_cast<float*>(address(id)); }
    [[nodiscard]] const int32_t* ints(BufferId id) const { return reinterpret_cast<const int32_t*>(address(id)); }
  };
  using MakeCommand = std::function<Command(const Addresses&)>;

  explicit Recorder(int n_devices);

  /// A buffer for steps of this device only.
  BufferId scratch(int device, int64_t bytes) { return add_buffer(device, bytes, false); }
  /// A buffer that steps of other devices read.
  BufferId shared(int device, int64_t bytes) { return add_buffer(device, bytes, true); }

  /// Records a step. Every buffer in `writes` belongs to `device`; buffers in `reads` may be another device's shared
  /// ones.
  void step(int device, std::vector<BufferId> reads, std::vector<BufferId> writes, MakeCommand make);

  /// Ends the device's current segment, so that others (and the host) can wait for what was recorded so far.
  void close_segment(int device);

  /// The segment that the device's next step joins; for noting where something happens. Opens one if none is open.
  int32_t current_segment(int device);

  /// Bytes of scratch that a device needs. Valid after layout().
  [[nodiscard]] uint64_t scratch_bytes(int device) const { return bytes_[static_cast<size_t>(device)]; }

  /// Ends all segments and gives every buffer its place.
  void layout();

  /// Where each segment of the order of recording stands in the list that build() returns. Valid after layout().
  [[nodiscard]] int32_t position(int32_t segment) const { return position_[static_cast<size_t>(segment)]; }

  /// The segments in the order of submission. `bases`: start of each device's scratch range.
  [[nodiscard]] std::vector<Segment> build(const std::vector<std::byte*>& bases) const;

 private:
  struct Buffer {
    int32_t device = 0;
    uint64_t bytes = 0;
    bool shared = false;
    int32_t first = -1;  // steps of its device between which it must keep its contents
    int32_t last = -1;
    int32_t first_writer = -1;         // segments
    int32_t writer = -1;               // the last one
    std::vector<int32_t> readers;      // shared buffers: segments of other devices
    std::array<uint64_t, 2> offset{};  // by parity; equal unless shared
  };
  /// Memory that shared buffers of one device take in turn.
  struct Slot {
    uint64_t bytes = 0;
    int32_t last = -1;             // step of its device after which the last buffer is dead there
    int32_t first_writer = -1;     // segment
    std::vector<int32_t> readers;  // segments of other devices that read any of its buffers
    std::array<uint64_t, 2> offset{};
  };
  struct Step {
    int32_t segment = 0;
    MakeCommand make;
  };
  struct OpenSegment {
    int32_t device = 0;
    int32_t ordinal = 0;  // among its device's segments
    bool closed = false;
    bool empty = true;
    std::vector<int32_t> waits;
    std::vector<int32_t> known;  // by device: ordinal of the last segment done when this one starts
  };

  BufferId add_buffer(int device, int64_t bytes, bool shared);
  /// Whether `segment` is known to be done for a device that knows what `known` says.
  [[nodiscard]] bool done(int device, const std::vector<int32_t>& known, int32_t segment) const;
  void wait_for(int device, int32_t segment);
  void touch(BufferId id, int device);
  void add_previous_waits(const Slot& slot, std::vector<Segment>& segments) const;
  void place_shared(int device);
  void place_scratch(int device);
  std::vector<Buffer*> buffers_of(int device, bool shared);

  int n_devices_;
  std::vector<Buffer> buffers_;
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
  std::vector<OpenSegment> segments_;
  std::vector<int32_t> order_;  // closed segments, in order of closing
  std::vector<int32_t> position_;
  std::vector<int32_t> current_;             // by device: open segment, -1: none
  std::vector<std::vector<int32_t>> known_;  // by device, by other device: ordinal known to be done, -1: none
  std::vector<int32_t> n_segments_;          // by device
  std::vector<int32_t> n_steps_;             // by device
  std::vector<uint64_t> bytes_;              // by device
};

}  // namespace tessera
