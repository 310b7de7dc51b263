// parallel/agree.h: small things that ranks tell each other. All are collective; errors: CommError.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "parallel/group.h"

namespace danlu::parallel {

/// Rank `root`'s text, on every rank.
std::string text_from(const Group& group, int64_t root, const std::string& text);
/// The largest of everybody's numbers.
int64_t largest_of(const Group& group, int64_t number);

/// What body() threw on the first of the ranks where it failed.
struct RankFailure {
  int64_t rank;
  Error error;
};

/// body() on every rank; the same on every rank: nullopt where it failed on none. A CommError is
/// thrown at once: the others are not there to be told. body may exchange what it likes if it fails
/// outside of that.
std::optional<RankFailure> first_failure(const Group& group, const std::function<void()>& body);
/// As first_failure; where body() throws on one rank, all throw: their own error, or one of the
/// first failure's kind and hint that says "rank N: " before what that one says.
void together(const Group& group, const std::function<void()>& body);

}  // namespace danlu::parallel
