#include "kernels/cpu/short_conv_body.h"  // defines avx512::short_conv
