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

/// Prepares the constraints of the first `places` requests, of those that run before those that
/// wait, as far as they await it: those first that have cost least since their last token, in
/// slices, until all are prepared or `work` is spent. Beyond it each thread goes one step of an
/// automaton at most. Who has sat out most passes has a slice first, since those who ask for little
/// at every token would always come before. Returns those whose constraint threw.
std::vector<FailedForm> work_on_forms(const LiveRequests& running, const LiveRequests& waiting,
                                      int64_t places, int64_t work);

}  // namespace danlu::infer
