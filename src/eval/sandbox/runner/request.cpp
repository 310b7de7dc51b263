#include "eval/sandbox/runner/request.h"

#include <errno.h>
#include <unistd.h>

#include <stdexcept>

namespace danlu::eval::runner {
namespace {

std::string read_program(size_t size_bytes) {
  std::string text(size_bytes, '\0');
  for (size_t got = 0; got < size_bytes;) {
    const ssize_t n = ::read(STDIN_FILENO, text.data() + got, size_bytes - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw std::invalid_argument("program");
    got += static_cast<size_t>(n);
  }
  return text;
}

}  // namespace

Request read_request(int argc, char** argv) {
  Request request;
  size_t program_bytes = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == argument.npos) throw std::invalid_argument(argument);
    const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
    if (name == "timeout_ms") {
      request.timeout_ms = std::stoll(value);
    } else if (name == "memory") {
      request.memory_bytes = std::stoll(value);
    } else if (name == "output") {
      request.output_bytes = std::stoll(value);
    } else if (name == "file") {
      request.file_bytes = std::stoll(value);
    } else if (name == "program") {
      program_bytes = std::stoull(value);
    } else if (name == "interpreter") {
      request.interpreter = value;
    } else if (name == "libraries") {
      request.libraries = value;
    } else if (name == "bind") {
      request.binds.push_back(value);
    } else if (name == "mask") {
      request.masks.push_back(value);
    } else {
      throw std::invalid_argument(argument);
    }
  }
  if (request.interpreter.empty() || request.timeout_ms <= 0 || request.memory_bytes <= 0 ||
      request.output_bytes <= 0 || request.file_bytes <= 0)
    throw std::invalid_argument("missing");
  request.program = read_program(program_bytes);
  return request;
}

void require(bool succeeded, sandbox_protocol::Layer layer) {
  if (!succeeded) throw Unavailable{layer, errno};
}

}  // namespace danlu::eval::runner
