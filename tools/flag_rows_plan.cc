// Flags of plan, and those that fit a model into its budgets.

#include "flag_rows.h"
#include "runtime/engine.h"

namespace tessera {
namespace {

constexpr std::string_view kSwitch = "The switch";

constexpr FlagRow kRows[] = {
    {.name = "fit",
     .shorts = "-fit",
     .kind = FlagKind::kEnum,
     .default_text = "off",
     .choices = "on off",
     .group = kPlacement,
     .commands = kAllPlanned,
     .help =
         "Choose what is not given (shares, cuts, what goes to the last CPU device, and where there is --fit-ctx the "
         "context length) so that the model fits into --device-memory"},
    {.name = "fit-target",
     .shorts = "-fitt",
     .kind = FlagKind::kUint,
     .list = true,
     .placeholder = "MIB,...",
     .default_note = "0 with --device-memory, else 1024",
     .max = 1e9,
     .group = kPlacement,
     .commands = kAllPlanned,
     .help = "MiB of each device that --fit leaves free; one value counts for all"},
    {.name = "fit-ctx",
     .shorts = "-fitc",
     .kind = FlagKind::kUint,
     .placeholder = "N",
     .default_text = "4096",
     .min = 1,
     .max = kMaxContext,
     .group = kPlacement,
     .commands = "run chat plan",
     .help = "Shortest context that --fit may choose where --ctx-size is not given; the longest is the model's own"},
    {.name = "from",
     .kind = FlagKind::kEnum,
     .required = true,
     .choices = "none layer tensor",
     .choice_aliases = "row=tensor",
     .group = kSwitch,
     .commands = "plan",
     .help = "Placement before; its shares are those of --tensor-split"},
    {.name = "to",
     .kind = FlagKind::kEnum,
     .required = true,
     .choices = "none layer tensor",
     .choice_aliases = "row=tensor",
     .group = kSwitch,
     .commands = "plan",
     .help = "Placement afterwards"},
    {.name = "to-tensor-split",
     .kind = FlagKind::kFloat,
     .list = true,
     .placeholder = "SHARE,...",
     .default_note = "as --tensor-split",
     .min = 0,
     .group = kSwitch,
     .commands = "plan",
     .help = "Share of each device afterwards, rounded to what the cuts of --tensor-split or --cuts express"},
    {.name = "kv-tokens",
     .kind = FlagKind::kUint,
     .placeholder = "N",
     .default_text = "0",
     .max = 1e9,
     .group = kSwitch,
     .commands = "plan",
     .help = "Tokens that the KV cache holds and that move with the weights"},
    {.name = "transition-staging",
     .kind = FlagKind::kBytes,
     .placeholder = "BYTES",
     .default_text = "64M",
     .group = kSwitch,
     .commands = "plan",
     .help =
         "Most memory of each device through which tiles pass that change places; less makes more and smaller copies"},
    {.name = "sim-link",
     .placeholder = "RATE:LATENCY[,RATE:LATENCY]",
     .default_text = "12GB/s:10us,200GB/s:5us",
     .group = kSwitch,
     .commands = "plan batched-bench",
     .help =
         "Speed of copies between devices, and within one, for the predicted time; GB counts in powers of 1000, GiB "
         "of 1024"},
    {.name = "moves", .kind = FlagKind::kBool, .group = kOutput, .commands = "plan", .help = "List every move"},
};

}  // namespace

std::span<const FlagRow> plan_rows() {
  return kRows;
}

}  // namespace tessera
