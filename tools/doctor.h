#pragma once
// What `tessera doctor` looks at: one small function for each question, each answered by a Check.
//
// The machine is first read into MachineFacts and then judged, so that tests can judge machines they do not have. The
// model is looked at by counting alone: no weight is read.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/flags.h"
#include "base/status.h"

namespace tessera {

enum class Verdict { kOk, kWarn, kBad };  // bad: the model cannot be served like this

/// The answer to one question.
struct Check {
  std::string_view name;  // "memory limit"
  Verdict verdict = Verdict::kOk;
  std::string found = {};
  std::string to_do = {};  // empty when all is well: flag, setting or command that helps, by name
};

struct ProcessMemory {
  std::string name;
  int64_t pid = 0;
  uint64_t bytes = 0;  // resident
};

/// What of the machine counts. A limit of 0: there is none.
struct MachineFacts {
  std::string processor;
  std::vector<std::string> isas;          // that it runs, best last
  std::vector<std::string> missing_isas;  // that this build knows
  int n_cpus = 1;                         // online
  int n_threads = 1;                      // that this process may run at once
  int n_nodes = 1;                        // of memory
  uint64_t memory_bytes = 0;              // of the machine
  uint64_t usable_bytes = 0;              // of the machine or the container, whichever is less
  uint64_t available_bytes = 0;           // of these, free
  uint64_t swap_bytes = 0;
  uint64_t swap_used_bytes = 0;
  bool strict_commit = false;  // vm.overcommit_memory is 2
  uint64_t commit_left_bytes = 0;
  std::string huge_pages;                // "always", "madvise", "never"; empty: the system has none
  uint64_t address_space_bytes = 0;      // limit (ulimit -v)
  uint64_t n_open_files = 0;             // limit (ulimit -n)
  std::vector<ProcessMemory> processes;  // the largest three, largest first
};

/// Reads the facts anew. What cannot be read stays as above.
MachineFacts machine_facts();

// ---- questions about the machine. `needed_bytes`: host memory that the model takes; 0: unknown

Check check_processor(const MachineFacts& facts);
/// n_wanted: of --threads; 0: not given.
Check check_threads(const MachineFacts& facts, uint64_t n_wanted);
Check check_nodes(const MachineFacts& facts, std::string_view numa);
Check check_memory(const MachineFacts& facts);
Check check_memory_limit(const MachineFacts& facts);
Check check_swap(const MachineFacts& facts);
Check check_overcommit(const MachineFacts& facts, uint64_t needed_bytes);
Check check_huge_pages(const MachineFacts& facts);
Check check_address_space(const MachineFacts& facts, uint64_t needed_bytes);
/// n_connections: of --max-connections.
Check check_open_files(const MachineFacts& facts, uint64_t n_connections);
/// Whether a server could listen there. host: as for --host.
Check check_address(const std::string& host, uint16_t port);

// ---- questions about the model

struct ModelChecks {
  std::vector<Check> checks;
  uint64_t needed_bytes = 0;  // on all devices; 0: unknown
  int64_t n_ctx_max = 0;      // longest context that fits; 0: none, or unknown
};

/// File, architecture, tokenizer, chat template, devices and context of --model. A question whose answer hangs on a
/// failed one is not asked.
ModelChecks check_model(const ParsedFlags& flags);

/// What to do, to be put behind the message, where a command failed because the file of --model cannot be read; empty
/// where it failed for another reason, or where the message says what to do by itself. Opens the file again.
std::string file_advice(const ParsedFlags& flags, const Status& failure);

}  // namespace tessera
