// npu/chips.h: chips that CANN knows and Danlu does not compute on. Asks no card.
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/error.h"

namespace danlu::npu {

/// Why nothing is computed on chips of that name (aclrtGetSocName), in the terminal's language; "":
/// it is, or the name is a later one than these. Of the first Ascend910 one is called Ascend910B;
/// those of an Atlas A2 have a number behind it. Source: CANN 8.1's pages of operators, by product.
inline std::string why_not_on(std::string_view chip) {
  constexpr std::array<std::string_view, 6> kFirst910 = {"Ascend910",     "Ascend910A",
                                                         "Ascend910B",    "Ascend910ProA",
                                                         "Ascend910ProB", "Ascend910PremiumA"};
  const bool is_310 = chip.substr(0, 9) == "Ascend310";
  if (!is_310 && std::find(kFirst910.begin(), kFirst910.end(), chip) == kFirst910.end()) return "";
  return tr(
      "nothing is computed on {}: CANN has no bf16 there, and lacks operators for norms or "
      "attention; Danlu needs an Atlas A2 (Ascend910B1 to B4) or newer",
      chip);
}

}  // namespace danlu::npu
