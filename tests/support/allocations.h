#pragma once
// Counts what the program and its libraries allocate through operator new, and makes allocations fail, in test programs
// that link allocations.cc (which replaces the global operators). Memory that C libraries take with malloc, and
// mappings, are not seen. Any thread.

#include <cstddef>
#include <cstdint>

namespace tessera {

/// Bytes allocated and not yet freed.
size_t live_bytes();
/// The most live bytes since the last reset_peak().
size_t peak_bytes();
/// Begins a new measurement: the peak is what lives now.
void reset_peak();

/// From now on `n_good` allocations of this thread (those with aligned_alloc too) succeed, then every other one fails
/// until `n_failures` have: what tries again gets on, and fails again later. Other threads' succeed.
void fail_allocations(int64_t n_good, int64_t n_failures);
/// From now on `n_good` allocations of whatever thread succeed, and the next one fails, once; negative: none fails.
/// What was left of the number given before: negative when that one has failed, or was none.
int64_t fail_one_anywhere(int64_t n_good);
/// This thread's allocations succeed again. How many have failed since fail_allocations().
int64_t end_failing_allocations();

}  // namespace tessera
