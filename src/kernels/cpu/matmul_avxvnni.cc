#include "kernels/cpu/matmul_body.h"
