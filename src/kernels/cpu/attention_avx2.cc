#include "kernels/cpu/attention_body.h"  // defines avx2::attention
