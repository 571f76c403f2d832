#include "kernels/cpu/glu_body.h"  // defines avx2::glu
