// Stacks and the switch between them. x86-64 switches by hand (about 5 ns); other machines, and
// builds with TC_USE_UCONTEXT, use ucontext (about 240 ns, because it saves the signal mask).
#pragma once
#include <stddef.h>

#if !defined(__x86_64__) && !defined(TC_USE_UCONTEXT)
#define TC_USE_UCONTEXT 1
#endif

namespace tc::emulator {

// A context is the top of its saved frame, or a ucontext_t*. Saves the running one in `*from` (which
// under ucontext already points to its ucontext_t) and continues at `to`.
void switch_stack(void** from, void* to);

// Stacks of one worker, kept between blocks. Pages are committed when first touched.
class StackPool {
 public:
  ~StackPool();
  // Makes sure that `count` stacks of `bytes` exist.
  void reserve(size_t count, size_t bytes);
  // A context that calls `entry` on stack `index` when first switched to; `entry` never returns.
  void* start(size_t index, void (*entry)());
  // Where the OS thread's own context is saved, after `reserve`.
  void* home();

 private:
  void release();
  unsigned char* memory_ = nullptr;
  void* contexts_ = nullptr;
  size_t count_ = 0, bytes_ = 0;
};

}  // namespace tc::emulator
