// doctor/npu_engine.h: the NPUs that the engine itself sees, asked of a child process.
#pragma once
#include <string>
#include <vector>

#include "doctor/system.h"

namespace danlu::doctor {

/// What Danlu's own library says of them.
struct NpuEngineAnswer {
  bool was_asked = false;                ///< CANN is there, or its simulator
  std::string why_not = {};              ///< why it could not answer; in the terminal's language
  std::string simulator = {};            ///< "NPU SIMULATOR …"; empty: cards
  std::vector<std::string> cards = {};   ///< "npu:0 Ascend910B3, 64.0 GiB, 61.2 GiB free"
  std::string refused = {};              ///< why nothing is computed on these cards
  std::vector<std::string> absent = {};  ///< operators that this CANN does not have
};
NpuEngineAnswer ask_npu_engine(const SystemRoots& roots);
/// What danlu_npu_describe() of the library gives, line by line: a word and a tab before each.
NpuEngineAnswer parse_npu_engine(const std::string& text);

}  // namespace danlu::doctor
