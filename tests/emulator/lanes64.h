// The vocabulary alone, with warps of 64 lanes: no backend.
#define TC_LANES_PER_WARP 64
#include "tc_emulated.h"
