#include "kernels/cpu/attention_body.h"  // defines avx512::attention
