#include "fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <new>

#ifdef TC_USE_UCONTEXT
#include <ucontext.h>
#endif

namespace tc::emulator {

// Tops of stacks are spread over cache sets: with equal offsets all lanes' hot frames would share
// a handful of sets.
static size_t colour(size_t index) { return (index * 5 % 64) * 64; }

#ifdef TC_USE_UCONTEXT

void switch_stack(void** from, void* to) {
  swapcontext(static_cast<ucontext_t*>(*from), static_cast<ucontext_t*>(to));
}

void* StackPool::home() { return static_cast<ucontext_t*>(contexts_) + count_; }

void* StackPool::start(size_t index, void (*entry)()) {
  ucontext_t* context = static_cast<ucontext_t*>(contexts_) + index;
  getcontext(context);
  context->uc_stack.ss_sp = memory_ + index * bytes_;
  context->uc_stack.ss_size = bytes_ - colour(index);
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}

static void* new_contexts(size_t count) { return calloc(count, sizeof(ucontext_t)); }

#else

// Callee-saved registers of the System V x86-64 ABI; MXCSR and the x87 word are never changed.
asm(R"(
.text
.p2align 4
.globl tc_emulator_switch_stack
.hidden tc_emulator_switch_stack
.type tc_emulator_switch_stack, @function
tc_emulator_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tc_emulator_switch_stack, .-tc_emulator_switch_stack
)");
extern "C" void tc_emulator_switch_stack(void** from, void* to);

void switch_stack(void** from, void* to) { tc_emulator_switch_stack(from, to); }

void* StackPool::home() { return nullptr; }

void* StackPool::start(size_t index, void (*entry)()) {
  auto top = reinterpret_cast<uintptr_t>(memory_ + (index + 1) * bytes_ - colour(index)) & ~uintptr_t(63);
  // Frame as left by the switch: six registers, then the return address. After `ret` the stack
  // pointer must be 8 below a multiple of 16, as after a call.
  void** frame = reinterpret_cast<void**>(top) - 8;
  memset(frame, 0, 8 * sizeof(void*));
  frame[6] = reinterpret_cast<void*>(entry);
  return frame;
}

static void* new_contexts(size_t) { return nullptr; }

#endif

void StackPool::release() {
  if (memory_ != nullptr) munmap(memory_, count_ * bytes_);
  free(contexts_);
  memory_ = nullptr;
  contexts_ = nullptr;
  count_ = 0;
}

StackPool::~StackPool() { release(); }

void StackPool::reserve(size_t count, size_t bytes) {
  if (count <= count_ && bytes == bytes_) return;
  release();
  void* memory = mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, count * bytes, MADV_NOHUGEPAGE);  // a huge page a stack would waste memory
  memory_ = static_cast<unsigned char*>(memory);
  contexts_ = new_contexts(count + 1);
  count_ = count;
  bytes_ = bytes;
}

}  // namespace tc::emulator
