#include "kernels/cpu/delta_rule_body.h"  // defines avx2::delta_rule
