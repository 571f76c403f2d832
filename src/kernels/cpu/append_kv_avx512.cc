#include "kernels/cpu/append_kv_body.h"  // defines avx512::append_kv
