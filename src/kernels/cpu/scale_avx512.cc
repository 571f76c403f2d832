#include "kernels/cpu/scale_body.h"  // defines avx512::scale
