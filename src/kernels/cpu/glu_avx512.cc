#include "kernels/cpu/glu_body.h"  // defines avx512::glu
