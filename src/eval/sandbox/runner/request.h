// eval/sandbox/runner/request.h: what the runner is asked to do, and how it says that it cannot.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "eval/sandbox/protocol.h"

namespace danlu::eval::runner {

struct Request {
  int64_t timeout_ms = 0, memory_bytes = 0, output_bytes = 0, file_bytes = 0;
  std::string interpreter, libraries;
  std::vector<std::string> binds, masks;
  std::string program;
};

/// A layer that could not be put up. `error` is the errno of the call that refused.
struct Unavailable {
  sandbox_protocol::Layer layer;
  int error;
};

/// From the arguments and standard input. Errors: std::invalid_argument.
Request read_request(int argc, char** argv);

/// Errors: Unavailable of `layer` with the errno of the last call, unless `succeeded`.
void require(bool succeeded, sandbox_protocol::Layer layer);

}  // namespace danlu::eval::runner
