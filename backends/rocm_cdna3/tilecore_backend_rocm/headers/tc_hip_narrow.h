// OCP 8-bit floats to float16, without branches: every value of both formats is a float16 (README.md).
#pragma once

namespace tc::narrow_bits {

// e5m2 is the upper byte of a float16, infinities and nans included.
TC_DEVICE uint16_t f16_of_e5m2(uint8_t code) { return uint16_t(code << 8); }

// e4m3 has 3 bits of fraction and a bias of 7: shifted into place it is 2^-8 of its value, subnormal
// numbers included, and the product with 2^8 is exact. Its one magnitude that is no number follows.
TC_DEVICE uint16_t f16_of_e4m3(uint8_t code) {
  const uint16_t sign = uint16_t((code & 0x80) << 8), magnitude = uint16_t(code & 0x7f);
  const uint16_t placed = uint16_t(sign | magnitude << 7);
  const _Float16 value = TC_BIT_CAST(_Float16, placed) * _Float16(256.0f);
  return magnitude == 0x7f ? uint16_t(sign | 0x7e00) : TC_BIT_CAST(uint16_t, value);
}

}  // namespace tc::narrow_bits
