#include "base/option_range.h"

#include <fmt/format.h>

#include <cmath>

namespace danlu {
namespace {

/// Limits are written out: 1000000, not 1e+06.
std::string number(double value) {
  return std::trunc(value) == value && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{}", value);
}

}  // namespace

bool NumberRange::contains(double value) const {
  if (special && value == *special) return true;
  if (!std::isfinite(value)) return false;
  if (least && (least_is_open ? value <= *least : value < *least)) return false;
  return !(most && (most_is_open ? value >= *most : value > *most));
}

std::string NumberRange::rule(std::string_view noun) const {
  std::string out(noun);
  if (least) out += fmt::format(" {} {}", least_is_open ? "above" : "of at least", number(*least));
  if (most) {
    out += fmt::format("{} {} {}", least ? " and" : "", most_is_open ? "below" : "up to",
                       number(*most));
  }
  if (!least && !most && !noun.starts_with("a finite"))
    out = "a finite " + out.substr(out.find(' ') + 1);
  if (special) out += fmt::format(", or {}", number(*special));
  return out;
}

std::string NumberRange::brief() const {
  std::string out;
  if (least && most && !least_is_open && !most_is_open) {
    out = fmt::format("{} to {}", number(*least), number(*most));
  } else {
    if (least) out = fmt::format("{}{}", least_is_open ? ">" : ">=", number(*least));
    if (most) {
      out += fmt::format("{}{}{}", least ? ", " : "", most_is_open ? "<" : "<=", number(*most));
    }
  }
  if (special && !out.empty()) out += fmt::format(" or {}", number(*special));
  return out;
}

}  // namespace danlu
