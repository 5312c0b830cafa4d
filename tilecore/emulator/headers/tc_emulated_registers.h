// Register arrays of one lane: TC_FRAGMENT names one, and every use of it is checked.
#pragma once

namespace tc {
namespace emulator {

// Reports an access outside of an array and gives up the block: there is no value to go on with.
[[noreturn, gnu::cold, gnu::noinline]] inline void outside(const char* name, int64_t at, int64_t count,
                                                            int64_t size, int text_line) {
  report(here(), Fault::registers_out_of_bounds, text_line, 0,
         "registers %lld to %lld of %s, which has %lld", static_cast<long long>(at),
         static_cast<long long>(at + count - 1), name, static_cast<long long>(size));
  abandon();
}

}  // namespace emulator

// A place in an array of registers. Plain arrays and pointers convert to one without known bounds.
template <class T>
struct registers {
  T* base;
  int64_t at;
  int64_t size;
  const char* name;

  registers(const T* first)
      : base(const_cast<T*>(first)), at(0), size(INT32_MAX), name("an array") {}
  registers(T* first, int64_t count, const char* called)
      : base(first), at(0), size(count), name(called) {}
  registers(T* first, int64_t start, int64_t count, const char* called)
      : base(first), at(start), size(count), name(called) {}

  [[gnu::always_inline]] T* take(int64_t count, int text_line = 0) const {
    if (__builtin_expect(at < 0 || at + count > size, 0))
      emulator::outside(name, at, count, size, text_line);
    return base + at;
  }
  // Written out, not by `take`: generated code does little else, and each level of calls is compile time.
  template <class Index>
  [[gnu::always_inline]] T& operator[](Index i) const {
    const int64_t place = at + int64_t(i);
    if (__builtin_expect(uint64_t(place) >= uint64_t(size), 0)) emulator::outside(name, place, 1, size, 0);
    return base[place];
  }
  template <class Index>
  [[gnu::always_inline]] registers operator+(Index i) const {
    return {base, at + int64_t(i), size, name};
  }
  [[gnu::always_inline]] operator T*() const { return take(1); }
};

// A parameter of this type takes part in no deduction.
template <class T> using registers_of = value_of<registers<T>>;

}  // namespace tc
