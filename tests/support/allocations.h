#pragma once
// Counts what the program allocates through operator new, in test programs that link allocations.cc (which replaces the
// global operators). Memory that C libraries take with malloc, and mappings, are not counted. Any thread.

#include <cstddef>

namespace tessera {

/// Bytes allocated and not yet freed.
size_t live_bytes();
/// The most live bytes since the last reset_peak().
size_t peak_bytes();
/// Begins a new measurement: the peak is what lives now.
void reset_peak();

}  // namespace tessera
