#include "kernels/cpu/rms_norm_body.h"  // defines avx512::rms_norm
