#include "program/lower/recorder.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"

namespace tessera {
namespace {

// Buffers start on multiples of this: what the widest vector loads and GPU transactions want.
constexpr uint64_t kBufferAlignment = 256;

}  // namespace

Recorder::Recorder(int n_devices)
    : n_devices_(n_devices),
      current_(static_cast<size_t>(n_devices), -1),
      known_(static_cast<size_t>(n_devices), std::vector<int32_t>(static_cast<size_t>(n_devices), -1)),
      n_segments_(static_cast<size_t>(n_devices), 0),
      n_steps_(static_cast<size_t>(n_devices), 0),
      bytes_(static_cast<size_t>(n_devices), 0) {}

BufferId Recorder::add_buffer(int device, int64_t bytes, bool shared) {
  Buffer buffer;
  buffer.device = device;
  buffer.bytes = round_up(static_cast<uint64_t>(std::max<int64_t>(bytes, 1)), kBufferAlignment);
  buffer.shared = shared;
  buffers_.push_back(std::move(buffer));
  return static_cast<BufferId>(buffers_.size() - 1);
}

bool Recorder::done(int device, const std::vector<int32_t>& known, int32_t segment) const {
  const OpenSegment& s = segments_[static_cast<size_t>(segment)];
  return s.device == device || known[static_cast<size_t>(s.device)] >= s.ordinal;
}

int32_t Recorder::current_segment(int device) {
  int32_t& current = current_[static_cast<size_t>(device)];
  if (current < 0) {
    current = static_cast<int32_t>(segments_.size());
    OpenSegment segment;
    segment.device = device;
    segment.ordinal = n_segments_[static_cast<size_t>(device)]++;
    segment.known = known_[static_cast<size_t>(device)];
    segments_.push_back(std::move(segment));
  }
  return current;
}

void Recorder::close_segment(int device) {
  int32_t& current = current_[static_cast<size_t>(device)];
  if (current >= 0) {
    segments_[static_cast<size_t>(current)].closed = true;
    order_.push_back(current);
    current = -1;
  }
}

void Recorder::wait_for(int device, int32_t segment) {
  if (done(device, known_[static_cast<size_t>(device)], segment)) {
    return;
  }
  const int32_t other = segments_[static_cast<size_t>(segment)].device;
  if (!segments_[static_cast<size_t>(segment)].closed) {
    close_segment(other);
  }
  const int32_t open = current_[static_cast<size_t>(device)];
  if (open >= 0 && !segments_[static_cast<size_t>(open)].empty) {
    close_segment(device);
  }
  const OpenSegment& awaited = segments_[static_cast<size_t>(segment)];
  std::vector<int32_t>& known = known_[static_cast<size_t>(device)];
  for (size_t d = 0; d < known.size(); ++d) {
    known[d] = std::max(known[d], awaited.known[d]);
  }
  known[static_cast<size_t>(other)] = std::max(known[static_cast<size_t>(other)], awaited.ordinal);
  OpenSegment& waiting = segments_[static_cast<size_t>(current_segment(device))];
  waiting.waits.push_back(segment);
  waiting.known = known;
}

void Recorder::touch(BufferId id, int device) {
  Buffer& buffer = buffers_[static_cast<size_t>(id)];
  if (buffer.device != device) {
    return;
  }
  const int32_t now = n_steps_[static_cast<size_t>(device)];
  buffer.first = buffer.first < 0 ? now : buffer.first;
  buffer.last = now;
}

void Recorder::step(int device, std::vector<BufferId> reads, std::vector<BufferId> writes, MakeCommand make) {
  for (const BufferId id : reads) {
    const Buffer& buffer = buffers_[static_cast<size_t>(id)];
    if (buffer.device != device) {
      CHECK(buffer.shared && buffer.writer >= 0);
      wait_for(device, buffer.writer);
    }
  }
  const int32_t segment = current_segment(device);
  segments_[static_cast<size_t>(segment)].empty = false;
  for (const BufferId id : reads) {
    Buffer& buffer = buffers_[static_cast<size_t>(id)];
    if (buffer.device != device) {
      buffer.readers.push_back(segment);
    }
    touch(id, device);
  }
  for (const BufferId id : writes) {
    Buffer& buffer = buffers_[static_cast<size_t>(id)];
    CHECK(buffer.device == device);
    buffer.writer = segment;
    buffer.first_writer = buffer.first_writer < 0 ? segment : buffer.first_writer;
    touch(id, device);
  }
  ++n_steps_[static_cast<size_t>(device)];
  steps_.push_back({segment, std::move(make)});
}

std::vector<Recorder::Buffer*> Recorder::buffers_of(int device, bool shared) {
  std::vector<Buffer*> mine;
  for (Buffer& buffer : buffers_) {
    if (buffer.device == device && buffer.shared == shared && buffer.first >= 0) {
      mine.push_back(&buffer);
    }
  }
  std::ranges::stable_sort(mine, [](const Buffer* a, const Buffer* b) { return a->first < b->first; });
  return mine;
}

// A slot takes the next buffer once its last one is dead on this device and the segment that writes the next one knows
// that all readers elsewhere are done.
void Recorder::place_shared(int device) {
  std::vector<Slot> slots;
  std::vector<size_t> slot_of;
  const std::vector<Buffer*> mine = buffers_of(device, true);
  for (const Buffer* buffer : mine) {
    const std::vector<int32_t>& known = segments_[static_cast<size_t>(buffer->first_writer)].known;
    auto slot = std::ranges::find_if(slots, [&](const Slot& s) {
      return s.bytes == buffer->bytes && s.last < buffer->first &&
             std::ranges::all_of(s.readers, [&](int32_t reader) { return done(device, known, reader); });
    });
    if (slot == slots.end()) {
      Slot added;
      added.bytes = buffer->bytes;
      added.first_writer = buffer->first_writer;
      for (uint64_t& offset : added.offset) {
        offset = bytes_[static_cast<size_t>(device)];
        bytes_[static_cast<size_t>(device)] += added.bytes;
      }
      slots.push_back(std::move(added));
      slot = slots.end() - 1;
    }
    slot->last = buffer->last;
    slot->readers.insert(slot->readers.end(), buffer->readers.begin(), buffer->readers.end());
    slot_of.push_back(static_cast<size_t>(slot - slots.begin()));
  }
  for (size_t i = 0; i < mine.size(); ++i) {
    mine[i]->offset = slots[slot_of[i]].offset;
  }
  slots_.insert(slots_.end(), slots.begin(), slots.end());
}

// First fit over the buffers' lifetimes, in order of first use.
void Recorder::place_scratch(int device) {
  struct Placed {
    uint64_t begin;
    uint64_t end;
    int32_t last;
  };
  uint64_t& top = bytes_[static_cast<size_t>(device)];
  const uint64_t start = top;
  std::vector<Placed> active;  // by begin
  for (Buffer* buffer : buffers_of(device, false)) {
    std::erase_if(active, [&](const Placed& p) { return p.last < buffer->first; });
    uint64_t at = start;
    auto before = active.begin();
    while (before != active.end() && before->begin < at + buffer->bytes) {
      at = std::max(at, before->end);
      ++before;
    }
    buffer->offset = {at, at};
    active.insert(before, {at, at + buffer->bytes, buffer->last});
    top = std::max(top, at + buffer->bytes);
  }
}

void Recorder::layout() {
  for (int d = 0; d < n_devices_; ++d) {
    close_segment(d);
  }
  position_.assign(segments_.size(), -1);
  for (size_t i = 0; i < order_.size(); ++i) {
    position_[static_cast<size_t>(order_[i])] = static_cast<int32_t>(i);
  }
  for (int d = 0; d < n_devices_; ++d) {
    place_shared(d);
    place_scratch(d);
  }
}

// The first to write a slot waits for those that read it in the micro-batch of the same parity before; of each device
// the last such segment covers the others.
void Recorder::add_previous_waits(const Slot& slot, std::vector<Segment>& segments) const {
  std::vector<int32_t> last(static_cast<size_t>(n_devices_), -1);
  for (const int32_t reader : slot.readers) {
    int32_t& position_of_last = last[static_cast<size_t>(segments_[static_cast<size_t>(reader)].device)];
    position_of_last = std::max(position_of_last, position(reader));
  }
  for (const int32_t reader : last) {
    if (reader >= 0) {
      segments[static_cast<size_t>(position(slot.first_writer))].waits_previous.push_back(reader);
    }
  }
}

std::vector<Segment> Recorder::build(const std::vector<std::byte*>& bases) const {
  std::vector<Segment> segments(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) {
    const OpenSegment& source = segments_[static_cast<size_t>(order_[i])];
    segments[i].device = source.device;
    for (const int32_t wait : source.waits) {
      segments[i].waits.push_back(position(wait));
    }
  }
  for (const Slot& slot : slots_) {
    add_previous_waits(slot, segments);
  }
  for (size_t parity = 0; parity < 2; ++parity) {
    Addresses addresses;
    addresses.parity = static_cast<int>(parity);
    addresses.address = [&](BufferId id) {
      const Buffer& buffer = buffers_[static_cast<size_t>(id)];
      return bases[static_cast<size_t>(buffer.device)] + buffer.offset[parity];
    };
    std::vector<CommandList> lists(segments.size());
    for (const Step& step : steps_) {
      Command command = step.make(addresses);
      lists[static_cast<size_t>(position(step.segment))].push_back(std::move(command));
    }
    for (size_t i = 0; i < segments.size(); ++i) {
      segments[i].commands[parity] = std::make_shared<const CommandList>(std::move(lists[i]));
    }
  }
  return segments;
}

}  // namespace tessera
