// Half precision on the host: the twins of to_half and from_half. The check program uses them too.
#pragma once
#include <stdint.h>
#include <string.h>

namespace shim {
template <class To, class From> static inline To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits() casts between types of the same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
} // namespace shim

// Rounds to the nearest half, ties to even. Magnitudes of 65520 and more become infinite; a NaN becomes 0x7fff.
static inline unsigned short to_half(float v) {
    uint32_t x = shim::bits<uint32_t>(v);
    const uint32_t sign = x >> 16 & 0x8000u;
    x &= 0x7fffffffu;
    if (x > 0x7f800000u) return 0x7fff;
    if (x >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
    // Halves below 2^-14 are multiples of 2^-24, as are floats between 0.5 and 1: adding 0.5 rounds correctly.
    if (x < 0x38800000u) return (unsigned short)(sign | (shim::bits<uint32_t>(shim::bits<float>(x) + 0.5f) - 0x3f000000u));
    x += 0xfffu + (x >> 13 & 1u);
    return (unsigned short)(sign | (x - 0x38000000u) >> 13);
}
static inline float from_half(unsigned short h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t rest = (uint32_t)(h & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) return shim::bits<float>(sign | 0x7f800000u | (rest & 0x7fffffu)); // infinity or NaN
    return shim::bits<float>(sign | shim::bits<uint32_t>(shim::bits<float>(rest) * 0x1p112f));
}
