#include "base/option_range.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/message.h"

namespace danlu {
namespace {

/// Limits are written out: 1000000, not 1e+06.
std::string shown_number(double value) {
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
  std::vector<std::string> limits;
  if (least)
    limits.push_back(least_is_open ? tr("above {}", shown_number(*least))
                                   : tr("of at least {}", shown_number(*least)));
  if (most)
    limits.push_back(most_is_open ? tr("below {}", shown_number(*most))
                                  : tr("up to {}", shown_number(*most)));
  std::string out(translated(limits.empty() ? "a finite number" : noun));
  if (!limits.empty()) out += tr(" {}", fmt::join(limits, translated(" and ")));
  if (special) out += tr(", or {}", shown_number(*special));
  return out;
}

std::string NumberRange::brief() const {
  std::string out;
  if (least && most && !least_is_open && !most_is_open) {
    out = fmt::format("{} to {}", shown_number(*least), shown_number(*most));
  } else {
    if (least) out = fmt::format("{}{}", least_is_open ? ">" : ">=", shown_number(*least));
    if (most) {
      out +=
          fmt::format("{}{}{}", least ? ", " : "", most_is_open ? "<" : "<=", shown_number(*most));
    }
  }
  if (special && !out.empty()) out += fmt::format(" or {}", shown_number(*special));
  return out;
}

}  // namespace danlu
