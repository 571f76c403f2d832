#pragma once
// The AVX-512 intrinsics, for files of stem *_avx512 only. g++ 12 warns of uninitialised variables inside its own
// intrinsics (they start from a deliberately undefined register), so the warning is off in those files.

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>
