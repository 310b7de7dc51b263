// npu/describe.h: what the plug-in finds on this machine, for `danlu doctor` and `danlu devices`.
#pragma once
#include <string>

namespace danlu::npu {

/// Lines of a word, a tab and what it says: "simulator", "card", "absent" (an operator that this
/// CANN does not have), "failure".
std::string description();

}  // namespace danlu::npu
