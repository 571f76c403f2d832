#include "kernels/cpu/append_kv_body.h"  // defines avx2::append_kv
