#include "kernels/cpu/add_body.h"  // defines avx512::add
