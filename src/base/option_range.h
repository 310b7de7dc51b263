// base/option_range.h: the numbers an option takes, as data of the option table.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace danlu {

/// An interval of finite numbers and, where other systems have one, a number outside it with a
/// meaning of its own. Written as at_least(1).or_value(-1), above(0), at_least(0).below(1).
struct NumberRange {
  std::optional<double> least = {}, most = {};
  bool least_is_open = false, most_is_open = false;
  std::optional<double> special = {};  ///< e.g. -1 for "all"

  constexpr NumberRange below(double end) const {
    NumberRange out = *this;
    out.most = end;
    out.most_is_open = true;
    return out;
  }
  constexpr NumberRange up_to(double end) const {
    NumberRange out = *this;
    out.most = end;
    return out;
  }
  constexpr NumberRange or_value(double value) const {
    NumberRange out = *this;
    out.special = value;
    return out;
  }

  /// False for infinities and NaN.
  bool contains(double value) const;
  /// "an integer of at least 1, or -1": `noun` ("an integer", "a number") and the interval.
  std::string rule(std::string_view noun) const;
  /// For help texts: "1 to 64", ">0, <=1", ">=1 or -1"; "" where any number will do.
  std::string brief() const;
};

constexpr NumberRange at_least(double start) {
  NumberRange out;
  out.least = start;
  return out;
}
constexpr NumberRange above(double start) {
  NumberRange out;
  out.least = start;
  out.least_is_open = true;
  return out;
}

}  // namespace danlu
