#include "integer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace lmtp::jinja {

struct Int::Division {
  Int quotient, rest;
};

Int::Int(Limbs limbs, bool negative) : limbs_(std::move(limbs)) {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  negative_ = negative && !limbs_.empty();
}

Int::Int(std::string_view decimal) {
  const bool negative = decimal.starts_with('-');
  for (const char c : decimal.substr(negative || decimal.starts_with('+') ? 1 : 0)) {
    std::uint64_t carry = static_cast<std::uint64_t>(c - '0');
    for (std::uint32_t& limb : limbs_) {
      carry += std::uint64_t{limb} * 10;
      limb = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) limbs_.push_back(static_cast<std::uint32_t>(carry));
  }
  negative_ = negative && !limbs_.empty();
}

Int::Int(double number) {
  int exponent = 0;
  const double part = std::frexp(std::fabs(std::trunc(number)), &exponent);
  const auto bits = static_cast<std::uint64_t>(std::ldexp(part, 53));
  const int shift = exponent - 53;
  *this = shift < 0 ? Int(bits >> std::min(-shift, 63))
                    : Int(bits) * pow(Int(2), static_cast<unsigned>(shift));
  negative_ = number < 0 && !limbs_.empty();
}

std::uint32_t Int::divide(std::uint32_t by) {
  std::uint64_t rest = 0;
  for (std::size_t i = limbs_.size(); i-- > 0;) {
    rest = rest << 32 | limbs_[i];
    limbs_[i] = static_cast<std::uint32_t>(rest / by);
    rest %= by;
  }
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  return static_cast<std::uint32_t>(rest);
}

std::string Int::str() const {
  if (limbs_.empty()) return "0";
  std::string digits;
  for (Int rest = *this; !rest.limbs_.empty();) {
    std::uint32_t nine = rest.divide(1'000'000'000);
    for (int i = 0; i < 9; ++i, nine /= 10) digits += static_cast<char>('0' + nine % 10);
  }
  digits.erase(digits.find_last_not_of('0') + 1);
  if (negative_) digits += '-';
  std::ranges::reverse(digits);
  return digits;
}

double Int::number() const {
  constexpr std::size_t kExactBits = 53;
  if (num_bits() <= kExactBits) return static_cast<double>(static_cast<std::int64_t>(*this));
  return std::strtod(str().c_str(), nullptr);
}

std::size_t Int::num_bits() const {
  if (limbs_.empty()) return 0;
  return limbs_.size() * 32 - static_cast<std::size_t>(std::countl_zero(limbs_.back()));
}

std::strong_ordering Int::compared(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() <=> b.size();
  for (std::size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] <=> b[i];
  }
  return std::strong_ordering::equal;
}

std::strong_ordering operator<=>(const Int& a, const Int& b) {
  if (a.negative_ != b.negative_) return b.negative_ <=> a.negative_;
  return a.negative_ ? Int::compared(b.limbs_, a.limbs_) : Int::compared(a.limbs_, b.limbs_);
}

Int::Limbs Int::sum(const Limbs& a, const Limbs& b) {
  Limbs out(std::max(a.size(), b.size()) + 1);
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    carry += (i < a.size() ? a[i] : 0);
    carry += (i < b.size() ? b[i] : 0);
    out[i] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
  return out;
}

// REQUIRES: b is not larger.
Int::Limbs Int::difference(const Limbs& a, const Limbs& b) {
  Limbs out = a;
  std::uint64_t borrowed = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t taken = (i < b.size() ? b[i] : 0) + borrowed;
    borrowed = out[i] < taken ? 1 : 0;
    out[i] = static_cast<std::uint32_t>(out[i] - taken);
  }
  return out;
}

Int operator+(const Int& a, const Int& b) {
  if (a.negative_ == b.negative_) return {Int::sum(a.limbs_, b.limbs_), a.negative_};
  if (Int::compared(a.limbs_, b.limbs_) < 0) {
    return {Int::difference(b.limbs_, a.limbs_), b.negative_};
  }
  return {Int::difference(a.limbs_, b.limbs_), a.negative_};
}

Int operator*(const Int& a, const Int& b) {
  Int::Limbs out(a.limbs_.size() + b.limbs_.size());
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.limbs_.size() || carry != 0; ++j) {
      carry += out[i + j] + std::uint64_t{a.limbs_[i]} * b.limb(j);
      out[i + j] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }
  return {std::move(out), a.negative_ != b.negative_};
}

// Bit by bit where the divisor has several limbs: such numbers are rare.
Int::Division Int::divided(const Int& a, const Int& b) {
  if (b.limbs_.size() == 1) {
    Int quotient = a;
    const std::uint32_t rest = quotient.divide(b.limbs_[0]);
    return {Int(std::move(quotient.limbs_), a.negative_ != b.negative_),
            Int(Limbs{rest}, a.negative_)};
  }
  Limbs quotient(a.limbs_.size());
  Int rest;
  const Int divisor = abs(b);
  for (std::size_t i = a.limbs_.size() * 32; i-- > 0;) {
    rest = rest + rest + Int(a.limbs_[i / 32] >> (i % 32) & 1);
    if (rest < divisor) continue;
    rest = rest - divisor;
    quotient[i / 32] |= std::uint32_t{1} << (i % 32);
  }
  return {Int(std::move(quotient), a.negative_ != b.negative_),
          Int(std::move(rest.limbs_), a.negative_)};
}

Int operator/(const Int& a, const Int& b) { return Int::divided(a, b).quotient; }
Int operator%(const Int& a, const Int& b) { return Int::divided(a, b).rest; }

Int Int::operator-() const { return {limbs_, !negative_}; }

Int pow(const Int& base, unsigned exponent) {
  Int result = 1;
  Int square = base;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = result * square;
    if (exponent > 1) square = square * square;
  }
  return result;
}

}  // namespace lmtp::jinja
