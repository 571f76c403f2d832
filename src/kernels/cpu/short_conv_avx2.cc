#include "kernels/cpu/short_conv_body.h"  // defines avx2::short_conv
