// infer/schedule.h: which requests a pass computes and how many tokens of each, as pure functions.
// Rules as vLLM's V1 scheduler: what runs comes first, what waits is admitted where nothing had to
// make room; where pages are short the last one gives all of its own back and begins anew.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace danlu::infer {

/// A request, in tokens and pages.
struct RequestProgress {
  int64_t total;          ///< tokens that are known: prompt and answer so far
  int64_t computed;       ///< of them in the cache; computed < total
  int64_t own_pages = 0;  ///< pages that nobody else holds
  /// The rest is computed in one pass, however much it is: the last thing that finds room in one
  /// may be longer than what is left of it.
  bool is_whole = false;
  bool sits_out = false;  ///< nothing of it is computed now
  int64_t copies = 0;     ///< pages for what the next token is written to and others hold too
};

/// What is left of a pass.
struct StepRoom {
  int64_t sequences, tokens;
  int64_t pages;         ///< that are free
  int64_t promised = 0;  ///< pages that admitted requests need for tokens they already have
};

struct Schedule {
  /// For each request that runs on, how many tokens this pass computes; 0: none.
  std::vector<int64_t> tokens;
  /// The requests after the first tokens.size() give their pages back and wait again.
  int64_t preempted = 0;
  StepRoom left;
};

/// `running`: the most urgent first.
Schedule schedule_running(std::span<const RequestProgress> running, StepRoom room);

/// How many tokens of a request that waits this pass computes; 0: it waits on. `revived`: pages of
/// the prefix cache that its computed tokens lie in and that count as free. Its whole prompt must
/// have pages, and each of the `running` requests one more: with fewer, the next tokens of those
/// would find none, and somebody would be preempted in the very next pass.
int64_t admit(const RequestProgress& waiting, int64_t revived, int64_t running, StepRoom& room);

}  // namespace danlu::infer
