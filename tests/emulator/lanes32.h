// The vocabulary alone, with warps of 32 lanes: no backend.
#define TC_LANES_PER_WARP 32
#include "tc_emulated.h"
