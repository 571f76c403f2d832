#pragma once
// A switch of a model's placement while its contexts live: reserve, move, commit, trim (docs/design.md, "Placement and
// transition"). Private to runtime.
//
// Who and when: any thread asks; the switch runs on the loop thread, between two calls. Calls leave the queues empty
// but for copies of recurrent state, which the switch waits for. So nothing else reads or writes what moves.
//
// Reserve takes all that a switch needs of a device, so it is where memory may lack: contexts are lowered for the new
// placement, the moves planned, and every range grown to the larger of before and after, with staging beside them where
// the plan has cycles (of each device the least of staging_bytes, eight pieces of 1 MiB, and the room there is; at
// least one unit). Move copies (transition/executor.h) and, when it fails, has undone itself; the host's memory may run
// out there too. Commit swaps placement, layouts and programs; it allocates nothing and cannot fail. Trim gives memory
// back, staging too, which cannot fail either; staging_bytes of it at most stay at hand for the next switch
// (MemoryRange::shrink()). So after an error at any step the old placement is whole and no range is larger than it was;
// the one exception is a device that died, or a way back that failed: then the model is lost: every decode and every
// later switch says so, what lies on the host stays readable. Every tile has a home before and after, so nothing is
// dropped or read from the file. The used KV pages and the recurrent state of every context follow their anchors' cuts;
// page tables, snapshots and logits are the host's and stay.
//
// With TransitionOptions::ahead_bytes a switch has three turns on the loop thread. In the first, tiles get places
// behind everything else, to which the calling thread copies them (copy_ahead.h) while others decode; in the second the
// switch runs as above, with these copies as moves that have arrived (TransitionWork::arrived). Then they are copied on
// into the holes that leaving tiles left in front of them, and in the third they are switched there, with the same
// homes and the same version. What fails:
//   before the second turn: a failed copy, or room that another needs, ends the copying, and the second turn is a
//   switch
//     without copies; progress or the deadline ends the call, the old placement holds;
//   in the second turn: as in a switch without copies, undone and an error, and the room is given back;
//   after it: the switch has succeeded whatever comes. A copy that fails is made again, in the third turn; what fails
//     there, progress and the deadline leave the holes (TransitionReport::held_bytes) to the next switch or context.
//     Only a lost device is an error.
// Another switch, or a context that is opened, ends the copying of this one (CopyAhead::drop(), which waits for the
// pieces on their way, never for a callback) and takes its turn; this one then goes on from what it finds, so the one
// that had its second turn last decides where everything is. No lock is held while progress is called.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "placement/planner.h"
#include "runtime/engine.h"
#include "runtime/model_state.h"

namespace tessera {

/// Largest copy. Tiles of some MiB become several chains of copies that wait for one another, so that every link always
/// has one to run; what is opened through staging, and the new pages that this costs, stay few.
inline constexpr uint64_t kSwitchPieceBytes = 1 << 20;

/// A generator by its name. Errors: kInvalidArgument, naming the flag.
Result<SplitMode> parse_split_mode(const std::string& name, std::string_view flag = "--split-mode");

/// The placement that a request means for this model, as if it were loaded so. Under the general form, workers of
/// streamed experts stay who they are. Errors: kInvalidArgument, naming the flag.
Result<Placement> requested_placement(const ModelState& model, const PlacementRequest& request, uint64_t version);

/// Plans with as much staging as staging_bytes allows, or as there is room for: pieces shrink with it, down to a unit.
/// request: without staging and pieces. room(pool): bytes of that pool's device that the extents leave; nothing where
/// even they do not fit. Whether the plan fits is for the caller to check. Errors: those of plan_transition(), less
/// than a unit of staging_bytes among them.
Result<Plan> plan_with_staging(TransitionRequest request, uint64_t staging_bytes,
                               const std::function<std::optional<uint64_t>(size_t pool)>& room);

/// Ends what another switch copies ahead and gives its room back. between_calls: no call of a context is in progress
/// (false where a context is opened from a callback of one), so that holes are closed, too. Homes and version stay.
/// Holes that cannot be closed stay for the next switch; that the model is lost says ModelState::lost. REQUIRES: on the
/// loop thread.
void end_copying_ahead(ModelState& model, bool between_calls);

/// Copies of the replicas to every device that `after` uses and `before` does not, from one that has them and keeps
/// them. They land before the device's first tile, where nothing lay: no move waits for them, and they for none.
/// Positions are from the start of the devices' weights; `extent` is the caller's to fill.
std::vector<Move> replica_moves(const Placement& before, const Placement& after, uint64_t replica_bytes);

/// As Model::set_placement(), from any thread. REQUIRES: model.loop is there (more than the vocabulary was loaded).
Result<TransitionReport> switch_placement(ModelState& model, const PlacementRequest& request,
                                          const TransitionOptions& options);

}  // namespace tessera
