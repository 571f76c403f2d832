#include "kernels/cpu/rope_body.h"  // defines avx512::rope
