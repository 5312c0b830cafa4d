// A stand-in for the driver's library: two devices whose memory is the host's, and one kernel,
// c[i] = a[i] + b[i], which a launch executes at once. Structures are those of cuda.h.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int Status;
typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
} LaunchConfig;

static __thread intptr_t context;  // ordinal + 1; 0 is none

Status cuInit(unsigned flags) { return 0; }
Status cuDriverGetVersion(int* version) { *version = 13000; return 0; }
Status cuDeviceGetCount(int* count) { *count = 2; return 0; }
Status cuDeviceGet(int* device, int ordinal) { *device = ordinal; return ordinal < 2 ? 0 : 101; }
Status cuDeviceGetName(char* name, int size, int device) {
  snprintf(name, size, "Stand-in %d", device);
  return 0;
}
Status cuDeviceTotalMem_v2(size_t* bytes, int device) { *bytes = 1 << 30; return 0; }
Status cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 12: *value = 65536; return 0;    // MAX_REGISTERS_PER_BLOCK
    case 16: *value = 108; return 0;      // MULTIPROCESSOR_COUNT
    case 75: *value = 8; return 0;        // COMPUTE_CAPABILITY_MAJOR
    case 76: *value = 0; return 0;        // COMPUTE_CAPABILITY_MINOR
    case 97: *value = 166912; return 0;   // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
  }
  return 1;
}
Status cuDevicePrimaryCtxRetain(void** out, int device) { *out = (void*)(intptr_t)(device + 1); return 0; }
Status cuCtxPushCurrent_v2(void* pushed) { context = context << 8 | (intptr_t)pushed; return 0; }
Status cuCtxPopCurrent_v2(void** popped) { *popped = (void*)(context & 255); context >>= 8; return 0; }
Status cuCtxSetCurrent(void* set) { context = (context & ~255) | (intptr_t)set; return 0; }
Status cuCtxGetCurrent(void** out) { *out = (void*)(context & 255); return 0; }
Status cuCtxGetDevice(int* device) { *device = (int)(context & 255) - 1; return context ? 0 : 201; }
Status cuCtxSynchronize(void) { return context & 255 ? 0 : 201; }
Status cuModuleLoadData(void** module, const void* image) {
  if (memcmp(image, "\177ELF", 4)) return 200;
  *module = (void*)(0x100 | (context & 255));
  return context & 255 ? 0 : 201;
}
Status cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return strcmp(name, "add") ? 500 : 0;
}
Status cuFuncGetAttribute(int* value, int attribute, void* function) {
  *value = attribute == 4 ? 32 : 0;  // NUM_REGS
  return 0;
}
Status cuFuncSetAttribute(void* function, int attribute, int value) { return 0; }
Status cuGetErrorString(Status status, const char** text) { *text = "said the stand-in"; return 0; }
Status cuLaunchKernelEx(const LaunchConfig* config, void* function, void** params, void** extra) {
  if (!(context & 255)) return 201;
  if (function != (void*)(0x100 | (context & 255))) return 400;
  const float *a = *(const float**)params[0], *b = *(const float**)params[1];
  float* c = *(float**)params[2];
  int n = *(int*)params[3];
  if (config->grid[0] != (unsigned)(n + 127) / 128 || config->block[0] != 128) return 1;
  for (int i = 0; i < n; ++i) c[i] = a[i] + b[i];
  return 0;
}
Status cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared_bytes, void* stream, void** params, void** extra) {
  LaunchConfig config = {{gx, gy, gz}, {bx, by, bz}, shared_bytes, stream, 0, 0};
  return cuLaunchKernelEx(&config, function, params, extra);
}

// Writes its arguments where the driver would write an encoding.
Status cuTensorMapEncodeTiled(uint64_t* map, int dtype, unsigned rank, void* address,
                              const uint64_t* extents, const uint64_t* strides, const unsigned* box,
                              const unsigned* steps, int interleave, int swizzle, int promotion,
                              int fill) {
  uint64_t* word = map;
  *word++ = dtype | rank << 8 | swizzle << 16 | promotion << 24;
  *word++ = (uint64_t)address;
  for (unsigned i = 0; i < rank; ++i) *word++ = extents[i];
  for (unsigned i = 0; i + 1 < rank; ++i) *word++ = strides[i];
  for (unsigned i = 0; i < rank; ++i) *word++ = box[i] | (uint64_t)steps[i] << 32;
  return interleave || fill;
}

Status cuTensorMapEncodeIm2col(uint64_t* map, int dtype, unsigned rank, void* address,
                               const uint64_t* extents, const uint64_t* strides, const int* lower,
                               const int* upper, unsigned channels, unsigned pixels,
                               const unsigned* steps, int interleave, int swizzle, int promotion,
                               int fill) {
  uint64_t* word = map;
  *word++ = dtype | rank << 8 | swizzle << 16 | promotion << 24;
  *word++ = (uint64_t)address;
  for (unsigned i = 0; i < rank; ++i) *word++ = extents[i];
  for (unsigned i = 0; i + 1 < rank; ++i) *word++ = strides[i];
  for (unsigned i = 0; i + 2 < rank; ++i) *word++ = (uint32_t)lower[i] | (uint64_t)upper[i] << 32;
  *word++ = channels | (uint64_t)pixels << 32;
  *word = 0;
  for (unsigned i = 0; i < rank; ++i) *word |= (uint64_t)steps[i] << 8 * i;
  return interleave || fill;
}

Status cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* found) {
  char versioned[128];
  snprintf(versioned, sizeof versioned, "%s_v2", name);
  *function = dlsym(RTLD_DEFAULT, versioned);
  if (!*function) *function = dlsym(RTLD_DEFAULT, name);
  if (found) *found = *function ? 0 : 1;
  return *function ? 0 : 500;
}
Status cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, 0);
}
