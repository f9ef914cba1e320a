// Whole numbers of any size, as Python has them.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmtp::jinja {

class Int {
 public:
  Int() = default;
  template <std::integral T>
  Int(T value) : negative_(value < 0) {  // NOLINT(google-explicit-constructor)
    auto rest = static_cast<std::uint64_t>(value);
    if (negative_) rest = 0 - rest;
    for (; rest != 0; rest >>= 32) limbs_.push_back(static_cast<std::uint32_t>(rest));
  }
  // REQUIRES: digits, of which a sign may come first.
  explicit Int(std::string_view decimal);
  // REQUIRES: finite. Its fraction is left out.
  explicit Int(double number);

  // Its lowest 64 bits.
  template <std::integral T>
  explicit operator T() const {
    const std::uint64_t low = limb(0) | limb(1) << 32;
    return static_cast<T>(negative_ ? 0 - low : low);
  }

  std::string str() const;
  // The nearest double; infinite where none is so large.
  double number() const;
  std::size_t num_bits() const;  // without the sign

  friend Int operator+(const Int& a, const Int& b);
  friend Int operator-(const Int& a, const Int& b) { return a + -b; }
  friend Int operator*(const Int& a, const Int& b);
  // Towards zero, and what is left. REQUIRES: b is not 0.
  friend Int operator/(const Int& a, const Int& b);
  friend Int operator%(const Int& a, const Int& b);
  Int operator-() const;
  friend Int abs(const Int& number) { return number.negative_ ? -number : number; }
  friend Int pow(const Int& base, unsigned exponent);

  friend bool operator==(const Int& a, const Int& b) = default;
  friend std::strong_ordering operator<=>(const Int& a, const Int& b);

 private:
  using Limbs = std::vector<std::uint32_t>;
  struct Division;  // quotient and rest

  Int(Limbs limbs, bool negative);
  static Division divided(const Int& a, const Int& b);
  static std::strong_ordering compared(const Limbs& a, const Limbs& b);
  static Limbs sum(const Limbs& a, const Limbs& b);
  static Limbs difference(const Limbs& a, const Limbs& b);
  std::uint64_t limb(std::size_t i) const { return i < limbs_.size() ? limbs_[i] : 0; }
  // Becomes a quotient; the rest.
  std::uint32_t divide(std::uint32_t by);

  Limbs limbs_;  // the lowest first; the highest is not 0
  bool negative_ = false;
};

}  // namespace lmtp::jinja
