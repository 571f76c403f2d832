#include "kernels/cpu/gated_norm_body.h"  // defines avx2::gated_norm
