// doctor/cards.h: whether a machine has cards at all. Internal to doctor.
#pragma once
#include <string>
#include <vector>

#include "doctor/system.h"

namespace danlu::doctor {

/// The files of `folder` whose name is `prefix` and a number, sorted.
std::vector<fs::path> numbered_files(const fs::path& folder, const std::string& prefix);

/// A device file of an NPU, its driver's folder or its tool: then what is missing is a fault.
bool has_npu(const SystemRoots& roots);

}  // namespace danlu::doctor
