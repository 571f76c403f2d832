#include "kernels/cpu/scale_body.h"  // defines avx2::scale
