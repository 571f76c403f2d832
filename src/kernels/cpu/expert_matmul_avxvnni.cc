#include "kernels/cpu/expert_matmul_body.h"  // defines avxvnni::expert_matmul
