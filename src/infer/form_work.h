// infer/form_work.h: what a step spends on the forms of answers, so that none holds the others up.
#pragma once
#include <cstdint>
#include <exception>
#include <vector>

#include "infer/live_request.h"

namespace danlu::infer {

struct FailedForm {
  LiveRequest* live;
  std::exception_ptr error;
};

/// Prepares constraints (grammars) whose next token is not known yet, until all are prepared or
/// `work` is spent; each thread goes at most one step of an automaton beyond it. Looked at are the
/// first `places` requests: those that run, then those that wait. The order of their turns:
/// 1. the one that sat out most passes, lest requests that ask for little at every token always
///    come before it;
/// 2. the others, those first whose constraint has cost least since their last token.
/// Each turn is a slice of the work. Returns the requests whose constraint threw.
std::vector<FailedForm> work_on_forms(const LiveRequests& running, const LiveRequests& waiting,
                                      int64_t places, int64_t work);

}  // namespace danlu::infer
