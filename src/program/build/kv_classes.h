#pragma once
// Layer classes of a program's cache: layers of one window share page tables (docs/design.md, memory).

#include <cstdint>
#include <vector>

#include "program/build/program.h"

namespace tessera {

struct KvClasses {
  std::vector<int64_t> windows;   // by class; 0: full attention
  std::vector<int32_t> of_layer;  // by layer: its class; -1 where the layer has no cache
};

KvClasses kv_classes(const Program& program);

}  // namespace tessera
