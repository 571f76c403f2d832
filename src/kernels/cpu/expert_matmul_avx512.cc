#include "kernels/cpu/expert_matmul_body.h"  // defines avx512::expert_matmul
