#include "kernels/cpu/expert_sum_body.h"  // defines avx512::expert_sum
