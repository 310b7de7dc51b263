// parallel/agree.h: small things that ranks tell each other. All are collective; errors: CommError.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "parallel/group.h"

namespace danlu::parallel {

/// Rank `root`'s text, on every rank.
std::string text_from(const Group& group, int64_t root, const std::string& text);
/// The largest of everybody's numbers.
int64_t largest_of(const Group& group, int64_t number);
/// body() on every rank; where it throws on one, all throw: their own error, or IoError with the
/// first rank and what it says. body may exchange what it likes if it fails outside of that.
void together(const Group& group, const std::function<void()>& body);

}  // namespace danlu::parallel
