#pragma once
// The commands of `tessera`, one file cmd_<name>.cc each. A command reads its parsed flags, does its work and prints
// its result on standard output; messages go to standard error. main.cc alone turns failures into exit statuses.

#include "base/flags.h"
#include "base/status.h"

namespace tessera {

Status cmd_run(const ParsedFlags& flags);
Status cmd_chat(const ParsedFlags& flags);
Status cmd_serve(const ParsedFlags& flags);
Status cmd_tokenize(const ParsedFlags& flags);
Status cmd_template(const ParsedFlags& flags);
Status cmd_logits(const ParsedFlags& flags);
Status cmd_embedding(const ParsedFlags& flags);
Status cmd_perplexity(const ParsedFlags& flags);
Status cmd_bench(const ParsedFlags& flags);
Status cmd_batched_bench(const ParsedFlags& flags);
Status cmd_bench_switch(const ParsedFlags& flags);
Status cmd_inspect(const ParsedFlags& flags);
Status cmd_plan(const ParsedFlags& flags);
Status cmd_devices(const ParsedFlags& flags);
Status cmd_doctor(const ParsedFlags& flags);
Status cmd_version(const ParsedFlags& flags);

// What a command needs beyond what the flag table can say, such as one of two flags. Errors are the user's:
// kInvalidArgument.
Status check_serve(const ParsedFlags& flags);
Status check_perplexity(const ParsedFlags& flags);
Status check_bench(const ParsedFlags& flags);
Status check_batched_bench(const ParsedFlags& flags);
Status check_bench_switch(const ParsedFlags& flags);
Status check_plan(const ParsedFlags& flags);
Status check_run(const ParsedFlags& flags);
Status check_chat(const ParsedFlags& flags);
Status check_tokenize(const ParsedFlags& flags);
Status check_logits(const ParsedFlags& flags);

}  // namespace tessera
