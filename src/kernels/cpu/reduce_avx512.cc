#include "kernels/cpu/reduce_body.h"  // defines avx512::reduce
