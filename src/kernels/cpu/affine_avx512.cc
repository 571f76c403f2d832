#include "kernels/cpu/affine_body.h"  // defines avx512::affine
