// What a model is told to be, other than its file says.

#include "flag_rows.h"

namespace tessera {
namespace {

constexpr FlagRow kRows[] = {
    {.name = "override-kv",
     .list = true,
     .repeats = true,
     .placeholder = "KEY=TYPE:VALUE,...",
     .group = kModel,
     .commands = "run chat serve tokenize template logits embedding perplexity batched-bench bench-switch bench plan "
                 "doctor",
     .help = "Read the model as if its file had this metadata, such as tokenizer.ggml.add_bos_token=bool:false; TYPE "
             "is int, float, bool or str. Before a KEY that begins with a dot goes the architecture's name; \\, is a "
             "comma within a VALUE. Saved "
             "states and prompt caches are of the model that this makes. Of two values for one key the last counts, "
             "also of the flags below"},
    {.name = "rope-scaling",
     .kind = FlagKind::kEnum,
     .default_note = "the file's",
     .choices = "none linear yarn",
     .group = kModel,
     .commands = kAllPlanned,
     .help = "How positions are stretched over a longer context: .rope.scaling.type"},
    {.name = "rope-scale",
     .kind = FlagKind::kFloat,
     .placeholder = "N",
     .default_note = "the file's",
     .min = 0,
     .max = 1e6,
     .group = kModel,
     .commands = kAllPlanned,
     .help = "By how much: .rope.scaling.factor; 0: the file's"},
    {.name = "rope-freq-scale",
     .kind = FlagKind::kFloat,
     .placeholder = "N",
     .default_note = "the file's",
     .min = 0,
     .max = 1e6,
     .group = kModel,
     .commands = kAllPlanned,
     .help = "The same as --rope-scale 1/N; 0: the file's"},
    {.name = "rope-freq-base",
     .kind = FlagKind::kFloat,
     .placeholder = "N",
     .default_note = "the file's",
     .min = 0,
     .max = 1e30,
     .group = kModel,
     .commands = kAllPlanned,
     .help = "Base of the frequencies: .rope.freq_base; 0: the file's"},
    {.name = "yarn-orig-ctx",
     .kind = FlagKind::kUint,
     .placeholder = "N",
     .default_note = "the file's",
     .max = 1e9,
     .group = kModel,
     .commands = kAllPlanned,
     .help = "Context that YaRN stretches: .rope.scaling.original_context_length; 0: the file's"},
    {.name = "yarn-attn-factor",
     .kind = FlagKind::kFloat,
     .placeholder = "N",
     .default_note = "the file's",
     .min = -1,
     .max = 1e6,
     .group = kModel,
     .commands = kAllPlanned,
     .help =
         "Factor on what positions add to attention, in the place of .rope.scaling.attn_factor (not times it); 0 or "
         "below: the file's"},
};

}  // namespace

std::span<const FlagRow> model_rows() {
  return kRows;
}

}  // namespace tessera
