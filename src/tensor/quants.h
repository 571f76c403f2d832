#pragma once
// Scalar reference for every tensor type: what the bytes of a row stand for, and how to make such bytes.
//
// These functions define the meaning of the formats for the whole project; fast kernels are tested against them. Plain
// C++ with float32 arithmetic in a fixed order: the same bits on every machine. Pure, callable from any thread.
// Layouts: the GGUF specification and docs/gguf-facts.md 1.5; verified bit for bit against tests/data/goldens/dequant.

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

/// Values of n consecutive elements. src: row_bytes(dtype, n) bytes, any alignment; dst: [n] f32.
/// Any bytes are legal input (the result may then hold infinities or NaN). Integers and f64 are rounded to float32.
/// REQUIRES: n >= 0 and a multiple of the type's block.
void dequantize_row(DType dtype, const void* src, float* dst, int64_t n);

/// Whether quantize_row can write this type.
[[nodiscard]] bool can_quantize(DType dtype);

/// Writes n values as row_bytes(dtype, n) bytes at dst (any alignment). Deterministic; each block is scaled by its
/// largest value (its range, for types with a minimum) and rounded to nearest, without a search for better scales.
/// Not meant for NaN or infinity: their blocks hold unspecified (but defined) values.
/// REQUIRES: can_quantize(dtype); n >= 0 and a multiple of the type's block.
void quantize_row(DType dtype, const float* src, void* dst, int64_t n);

}  // namespace tessera
