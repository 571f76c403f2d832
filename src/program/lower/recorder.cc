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
  if (shared) {
    // A slot whose readers are all known to be done can take the next value.
    const auto free = std::ranges::find_if(slots_, [&](const Slot& slot) {
      return slot.device == device && slot.bytes == buffer.bytes &&
             std::ranges::all_of(slot.last_reader, [&](int32_t reader) { return knows(device, reader); });
    });
    if (free != slots_.end()) {
      buffer.slot = static_cast<int32_t>(free - slots_.begin());
    } else {
      buffer.slot = static_cast<int32_t>(slots_.size());
      Slot slot;
      slot.device = device;
      slot.bytes = buffer.bytes;
      slot.last_reader.assign(static_cast<size_t>(n_devices_), -1);
      slots_.push_back(std::move(slot));
    }
  }
  buffers_.push_back(buffer);
  return static_cast<BufferId>(buffers_.size() - 1);
}

BufferId Recorder::shared(int device, int64_t bytes) { return add_buffer(device, bytes, true); }

bool Recorder::knows(int device, int32_t segment) const {
  if (segment < 0) {
    return true;
  }
  const OpenSegment& s = segments_[static_cast<size_t>(segment)];
  return s.device == device || known_[static_cast<size_t>(device)][static_cast<size_t>(s.device)] >= s.ordinal;
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
  if (knows(device, segment)) {
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
      CHECK(buffer.slot >= 0 && buffer.writer >= 0);
      wait_for(device, buffer.writer);
    }
  }
  const int32_t segment = current_segment(device);
  segments_[static_cast<size_t>(segment)].empty = false;
  for (const BufferId id : reads) {
    const Buffer& buffer = buffers_[static_cast<size_t>(id)];
    if (buffer.device != device) {
      slots_[static_cast<size_t>(buffer.slot)].last_reader[static_cast<size_t>(device)] = segment;
    }
    touch(id, device);
  }
  for (const BufferId id : writes) {
    Buffer& buffer = buffers_[static_cast<size_t>(id)];
    CHECK(buffer.device == device);
    buffer.writer = segment;
    if (buffer.slot >= 0) {
      int32_t& first = slots_[static_cast<size_t>(buffer.slot)].first_writer;
      first = first < 0 ? segment : first;
    }
    touch(id, device);
  }
  ++n_steps_[static_cast<size_t>(device)];
  steps_.push_back({segment, std::move(make)});
}

// First fit over the buffers' lifetimes, in order of first use.
void Recorder::place_scratch(int device) {
  struct Placed {
    uint64_t begin;
    uint64_t end;
    int32_t last;
  };
  std::vector<Buffer*> mine;
  for (Buffer& buffer : buffers_) {
    if (buffer.device == device && buffer.slot < 0 && buffer.first >= 0) {
      mine.push_back(&buffer);
    }
  }
  std::ranges::stable_sort(mine, [](const Buffer* a, const Buffer* b) { return a->first < b->first; });
  uint64_t& top = bytes_[static_cast<size_t>(device)];
  const uint64_t start = top;
  std::vector<Placed> active;  // by begin
  for (Buffer* buffer : mine) {
    std::erase_if(active, [&](const Placed& p) { return p.last < buffer->first; });
    uint64_t at = start;
    auto before = active.begin();
    while (before != active.end() && before->begin < at + buffer->bytes) {
      at = std::max(at, before->end);
      ++before;
    }
    buffer->offset = at;
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
  for (Slot& slot : slots_) {
    for (uint64_t& offset : slot.offset) {
      offset = bytes_[static_cast<size_t>(slot.device)];
      bytes_[static_cast<size_t>(slot.device)] += slot.bytes;
    }
  }
  for (int d = 0; d < n_devices_; ++d) {
    place_scratch(d);
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
    for (const int32_t reader : slot.last_reader) {
      if (reader >= 0 && slot.first_writer >= 0) {
        segments[static_cast<size_t>(position(slot.first_writer))].waits_previous.push_back(position(reader));
      }
    }
  }
  for (size_t parity = 0; parity < 2; ++parity) {
    Addresses addresses;
    addresses.parity = static_cast<int>(parity);
    addresses.address = [&](BufferId id) {
      const Buffer& buffer = buffers_[static_cast<size_t>(id)];
      const uint64_t offset = buffer.slot >= 0 ? slots_[static_cast<size_t>(buffer.slot)].offset[parity] : buffer.offset;
      return bases[static_cast<size_t>(buffer.device)] + offset;
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
