// Flags of switches between placements: those of run and chat, and bench-switch.

#include "flag_rows.h"

namespace tessera {
namespace {

constexpr FlagRow kRows[] = {
    {.name = "prefill-split-mode",
     .shorts = "-psm",
     .kind = FlagKind::kEnum,
     .default_note = "as --split-mode",
     .choices = "none layer tensor",
     .choice_aliases = "row=tensor",
     .group = kPlacement,
     .commands = "run chat",
     .help =
         "Placement while a prompt is read; the model then moves to that of --split-mode, which generates, and back "
         "for the next prompt. Where one of them does not fit, the other does both"},
    {.name = "prefill-tensor-split",
     .shorts = "-pts",
     .kind = FlagKind::kFloat,
     .list = true,
     .placeholder = "SHARE,...",
     .default_note = "as --tensor-split",
     .min = 0,
     .group = kPlacement,
     .commands = "run chat",
     .help = "Share of each device under --prefill-split-mode"},
    {.name = "split-policy",
     .kind = FlagKind::kEnum,
     .default_text = "off",
     .choices = "off auto",
     .group = kPlacement,
     .commands = kGenerate,
     .help =
         "auto: for each prompt, choose layer or tensor for reading it and for the answer, by the speeds of both and "
         "the time of a switch, which are measured once a day for a model and its devices, and again where "
         "answers come a quarter faster or slower than then. Often the best is to stay. serve does the same with the "
         "prompts that it reads together, and with the answers after them"},
    {.name = "policy-cache",
     .placeholder = "FILE",
     .default_note = "tessera/split-policy.json in the user's folder of caches",
     .group = kPlacement,
     .commands = kGenerate,
     .help = "Where --split-policy auto keeps what it has measured; without the file it measures anew"},
    {.name = "transition-staging",
     .kind = FlagKind::kBytes,
     .placeholder = "BYTES",
     .default_text = "64M",
     .group = kPlacement,
     .commands = "run chat serve bench-switch",
     .help = "Most memory of each device that a switch takes beside what both placements need, and that stays "
             "at hand for the next one"},
    {.name = "transition-ahead",
     .kind = FlagKind::kBytes,
     .placeholder = "BYTES",
     .default_text = "0",
     .group = kPlacement,
     .commands = "serve bench-switch",
     .help =
         "Most memory of each device that weights take beyond both placements, so that they are copied while requests "
         "go on, before a switch that was asked for and, into their places, once more after it. 0: all is moved in "
         "the switch"},
    {.name = "model",
     .shorts = "-m",
     .required = true,
     .placeholder = "FILE",
     .group = kModel,
     .commands = "bench-switch",
     .help = "GGUF file; of a split file the first part",
     .json_name = "model"},
    {.name = "to",
     .kind = FlagKind::kEnum,
     .default_text = "tensor",
     .choices = "none layer tensor",
     .choice_aliases = "row=tensor",
     .group = kTests,
     .commands = "bench-switch",
     .help = "The placement to switch to and back from; the model begins under --split-mode"},
    {.name = "kv-tokens",
     .kind = FlagKind::kUint,
     .placeholder = "N",
     .default_text = "512",
     .max = 1e8,
     .group = kTests,
     .commands = "bench-switch",
     .help = "Tokens that the KV cache holds, and that move with the weights"},
    {.name = "n-prompt",
     .shorts = "-p",
     .kind = FlagKind::kUint,
     .placeholder = "N",
     .default_text = "128",
     .min = 1,
     .max = 1e6,
     .group = kTests,
     .commands = "bench-switch",
     .help = "Tokens of the prompt whose speed is compared before and after switches"},
    {.name = "n-gen",
     .shorts = "-n",
     .kind = FlagKind::kUint,
     .placeholder = "N",
     .default_text = "16",
     .min = 1,
     .max = 1e6,
     .group = kTests,
     .commands = "bench-switch",
     .help = "Tokens of the generation whose speed is compared"},
    {.name = "repetitions",
     .shorts = "-r",
     .kind = FlagKind::kUint,
     .placeholder = "N",
     .default_text = "5",
     .min = 1,
     .max = 1000,
     .group = kTests,
     .commands = "bench-switch",
     .help = "Switches each way that are timed"},
};

}  // namespace

std::span<const FlagRow> switch_rows() {
  return kRows;
}

}  // namespace tessera
