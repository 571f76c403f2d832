#include "program/build/kv_classes.h"

#include <algorithm>

namespace tessera {

KvClasses kv_classes(const Program& program) {
  KvClasses classes;
  for (const KvLayerSpec& layer : program.kv_layers) {
    if (layer.n_kv_heads == 0) {
      classes.of_layer.push_back(-1);
      continue;
    }
    auto it = std::ranges::find(classes.windows, layer.window);
    if (it == classes.windows.end()) {
      classes.windows.push_back(layer.window);
      it = classes.windows.end() - 1;
    }
    classes.of_layer.push_back(static_cast<int32_t>(it - classes.windows.begin()));
  }
  return classes;
}

}  // namespace tessera
