// doctor/engine.h: which libtorch the engine library is linked with, asked of a child process.
#pragma once
#include <optional>
#include <string>

#include "doctor/system.h"

namespace danlu::doctor {

/// A slow network file system has been seen to take a minute for libtorch.
constexpr double kEngineTimeoutS = 120;

struct LibtorchBuild {
  std::string version;       ///< "2.6.0"
  bool has_cuda = false;     ///< built with it; whether a card answers is another question
  std::string cuda_runtime;  ///< "12.4"; empty without CUDA
  std::string blas;          ///< as libtorch's build calls it: "open", "mkl"
  std::string capability;    ///< of its kernels in use: "AVX2"
};
/// Reads what at::show_config() says.
LibtorchBuild parse_torch_config(const std::string& config);

struct EngineAnswer {
  bool is_there = false;               ///< the file
  std::optional<LibtorchBuild> build;  ///< if it opens
  std::string why_not;                 ///< else
};
EngineAnswer ask_engine(const SystemRoots& roots);

}  // namespace danlu::doctor
