// tests/weights/python_torch.h: PyTorch as the oracle of what a .pt file means.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/shared_data.h"

namespace danlu::test {

/// The interpreter that has torch, or "" where there is none. Importing torch takes a second:
/// looked for once.
inline const std::string& python_with_torch() {
  static const std::string found = [] {
    for (const char* python : {"python3", "/usr/bin/python3"}) {
      const std::string import = std::string(python) + " -c 'import torch, numpy' 2>/dev/null";
      if (std::system(import.c_str()) == 0) return std::string(python);
    }
    return std::string();
  }();
  return found;
}

/// Runs tests/weights/<script> with these arguments; its exit status.
inline int run_python(const std::string& python, const std::string& script,
                      const std::string& arguments) {
  const std::string path = std::string(DANLU_SOURCE_DIR) + "/tests/weights/" + script;
  return std::system((python + " '" + path + "' " + arguments).c_str());
}

}  // namespace danlu::test

/// Sets a string `python`; skips (or fails, where nothing may be skipped) if there is no torch.
#define DANLU_REQUIRES_PYTHON_TORCH()                                              \
  const std::string& python = ::danlu::test::python_with_torch();                  \
  if (python.empty()) {                                                            \
    if (::danlu::test::shared_must_exist())                                        \
      FAIL() << "python3 with torch is missing (apt: python3-torch)";              \
    GTEST_SKIP() << "no python3 with torch to check against (apt: python3-torch)"; \
  }                                                                                \
  static_assert(true)
