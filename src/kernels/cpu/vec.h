#pragma once
// Sixteen f32 lanes, the same for every instruction set, so that one kernel body gives equal bits everywhere.
//
// A kernel body is written once, in a header `<op>_body.h` (a definition in a header, as lint is told there), inside
// namespace tessera::TESSERA_ISA, and compiled by up to three files: <op>.cc (portable), <op>_avx2.cc, <op>_avx512.cc;
// integer products by a fourth, <op>_avxvnni.cc (AVX2 with its dot product).
// Every operation below is one IEEE operation per lane (fma is fused in all), so the bodies agree bit for bit; the
// namespace keeps their functions apart: linkers keep one copy of an inline name. NaN payloads are outside the promise.
//
// n in *_n functions: how many lanes are present; below 0 counts as 0, above 16 as 16; absent lanes load as 0.

#if defined(__AVX512F__)
#define TESSERA_ISA avx512
#include "kernels/cpu/vec_avx512.h"
#elif defined(__AVX2__)
#if defined(__AVXVNNI__)
#define TESSERA_ISA avxvnni
#else
#define TESSERA_ISA avx2
#endif
#include "kernels/cpu/vec_avx2.h"
#else
#define TESSERA_ISA portable
#include "kernels/cpu/vec_portable.h"
#endif
