#include "kernels/cpu/affine_body.h"  // defines avx2::affine
