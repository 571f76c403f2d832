#include "kernels/cpu/expert_matmul_body.h"  // defines avx2::expert_matmul
