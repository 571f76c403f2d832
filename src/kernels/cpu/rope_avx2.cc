#include "kernels/cpu/rope_body.h"  // defines avx2::rope
