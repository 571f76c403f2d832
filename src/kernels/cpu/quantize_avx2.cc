#include "kernels/cpu/quantize_body.h"
