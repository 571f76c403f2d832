#pragma once
// What gemma2 and gemma3 share: scaled embeddings, norms before and after each block, tanh-GELU, a pattern of window
// and full attention layers, soft caps.

#include "models/architecture.h"

namespace tessera {

struct GemmaRule {
  bool qk_norm = false;          // RMS norm of each query and key head before rope
  bool own_window_rope = false;  // window layers rotate with rope.freq_base_swa, unscaled
  bool softcaps = false;         // attention and final logits have soft caps unless the file says otherwise
  int64_t pattern = 2;           // every pattern-th layer is full, the others have a window
  int64_t default_window = 0;
  int64_t wide_query_n_layer = 0;  // the size whose queries are scaled by n_embd / n_head instead of the head's width
};

Result<ModelDefinition> build_gemma(const GgufFile& file, const GemmaRule& rule);

}  // namespace tessera
