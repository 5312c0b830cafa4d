// Stand-ins for libamdhip64.so and libhiprtc.so, at the border of C: hip-python itself runs above them.
// What arrives is printed, one line a call.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int current;
static char properties[1 << 14];
static size_t properties_size;

static int number(const char* name) {
  const char* text = getenv(name);
  return text ? atoi(text) : 0;
}

void fake_properties(const void* from, size_t size) {
  memcpy(properties, from, size);
  properties_size = size;
}
int hipGetDeviceCount(int* count) {
  *count = number("FAKE_DEVICES");
  return 0;
}
int hipGetDevice(int* device) {
  *device = current;
  return 0;
}
int hipSetDevice(int device) {
  current = device;
  printf("set %d\n", device);
  return 0;
}
int hipGetDevicePropertiesR0600(void* to, int device) {
  (void)device;
  memcpy(to, properties, properties_size);
  return 0;
}
int hipModuleLoadData(void** module, const void* image) {
  printf("load %.4s on %d\n", (const char*)image, current);
  *module = (void*)(long)(0x100 + current);
  return 0;
}
int hipModuleGetFunction(void** function, void* module, const char* name) {
  printf("function %s of %lx\n", name, (long)module);
  *function = (void*)((long)module + 0x1000);
  return 0;
}
int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void* stream, void** parameters, void** extra) {
  printf("launch %lx grid %u %u %u block %u %u %u lds %u stream %lx extra %lx:", (long)f, gx, gy, gz,
         bx, by, bz, lds, (long)stream, (long)extra);
  for (int i = 0; i < number("FAKE_PARAMETERS"); ++i) printf(" %lx", *(long*)parameters[i]);
  printf("\n");
  return number("FAKE_STATUS");
}
int hipDeviceSynchronize(void) {
  printf("synchronize %d\n", current);
  return 0;
}

int hiprtcVersion(int* major, int* minor) {
  *major = 9;
  *minor = 1;
  return 0;
}
int hiprtcCreateProgram(void** program, const char* text, const char* name, int headers,
                        const char* const* texts, const char* const* names) {
  printf("program %s: %zu characters, %d headers %d\n", name, strlen(text), headers,
         texts != NULL || names != NULL);
  *program = (void*)0x77;
  return 0;
}
int hiprtcCompileProgram(void* program, int count, const char* const* options) {
  printf("compile %lx:", (long)program);
  for (int i = 0; i < count; ++i) printf(" %s", options[i]);
  printf("\n");
  return number("FAKE_STATUS");
}
int hiprtcGetProgramLogSize(void* program, size_t* size) {
  (void)program;
  *size = 8;
  return 0;
}
int hiprtcGetProgramLog(void* program, char* log) {
  (void)program;
  memcpy(log, "remarks", 8);
  return 0;
}
int hiprtcGetCodeSize(void* program, size_t* size) {
  (void)program;
  *size = 4;
  return 0;
}
int hiprtcGetCode(void* program, char* code) {
  (void)program;
  memcpy(code, "\x7f" "ELF", 4);
  return 0;
}
int hiprtcDestroyProgram(void** program) {
  printf("destroy %lx\n", (long)*program);
  return 0;
}
