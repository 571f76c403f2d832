#include "kernels/cpu/add_body.h"  // defines avx2::add
