// eval/sandbox/probe.h: a program that tries to break out of the sandbox that it runs in.
#pragma once
#include <string>

namespace danlu::eval {

/// Python text. Raises Missing(n) if layer n (sandbox_protocol::Layer) is not there.
/// `memory_bytes`: the limit that must be in force.
std::string sandbox_probe(int64_t memory_bytes);

/// The layer that the probe's verdict ("failed: Missing: 11") says is missing; -1 if it says
/// something else.
int missing_layer(const std::string& detail);

}  // namespace danlu::eval
