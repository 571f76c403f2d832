#include "kernels/cpu/rms_norm_body.h"  // defines avx2::rms_norm
