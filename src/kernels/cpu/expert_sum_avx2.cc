#include "kernels/cpu/expert_sum_body.h"  // defines avx2::expert_sum
