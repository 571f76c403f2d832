#include "kernels/cpu/delta_rule_body.h"  // defines avx512::delta_rule
