#include "kernels/cpu/reduce_body.h"  // defines avx2::reduce
