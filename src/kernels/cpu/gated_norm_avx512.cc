#include "kernels/cpu/gated_norm_body.h"  // defines avx512::gated_norm
