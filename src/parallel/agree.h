// parallel/agree.h: small things that ranks tell each other. All are collective; errors: CommError.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "parallel/group.h"

namespace danlu::parallel {

/// Rank `root`'s text, on every rank.
std::string text_from(const Group& group, int64_t root, const std::string& text);
int64_t sum_of(const Group& group, int64_t number);
/// Everybody's texts, or numbers, in the order of ranks.
std::vector<std::string> texts_of_all(const Group& group, const std::string& text);
std::vector<int64_t> numbers_of_all(const Group& group, int64_t number);
/// The largest of everybody's numbers.
int64_t largest_of(const Group& group, int64_t number);

/// What body() threw on the first of the ranks where it failed.
struct RankFailure {
  int64_t rank;
  Error error;
};

/// An error in the midst of an exchange. The others wait in it, and are told by this rank's end
/// alone (World::give_up).
class BrokenExchange : public Error {
 public:
  explicit BrokenExchange(const Error& error) : Error(error) {}
};
/// Throws the exception under way: a CommError as it is, any other as a BrokenExchange of its kind.
/// REQUIRES: called inside a catch block.
[[noreturn]] void throw_broken_exchange();

/// body() on every rank; the same on every rank: nullopt where it failed on none. A CommError and a
/// BrokenExchange are thrown at once: the others are not there to be told. body may exchange what
/// it likes if it fails outside of that, or so.
std::optional<RankFailure> first_failure(const Group& group, const std::function<void()>& body);
/// Calls body() as first_failure does; where it throws on one rank, all throw: their own error, or
/// one of the first failure's kind and hint that says "rank N: " before what that one says.
void together(const Group& group, const std::function<void()>& body);

}  // namespace danlu::parallel
