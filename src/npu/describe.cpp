#include "npu/describe.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "npu/context.h"
#include "npu/library.h"
#include "npu/operators.h"

namespace danlu::npu {
namespace {

std::vector<std::string> absent_operators() {
  using namespace aclnn;
  std::vector<std::string> absent;
  const auto look = [&](const auto&... operators) {
    ((operators.is_there() ? void() : absent.push_back(operators.name())), ...);
  };
  look(matmul, addmm, inplace_addmm, inplace_copy, inplace_fill, aclnn::add, inplace_add, adds, mul,
       muls, inplace_muls, div, maximum, exp, log, sqrt, sin, cos, neg, is_finite, ge_scalar, where,
       reduce_sum, amax, max_dim, all, gather, index_select, index_add, scatter_add, rms_norm,
       rms_norm_grad, swi_glu, swi_glu_grad, rotary, attention, attention_grad);
  return absent;
}

}  // namespace

std::string description() {
  std::string text;
  try {
    const int count = device_count();
    if (!simulator_version().empty())
      text += fmt::format("simulator\tNPU SIMULATOR {}\n", simulator_version());
    for (int device = 0; device < count; ++device) {
      const DeviceMemory memory = device_memory(device);
      text += fmt::format("card\tnpu:{} {}, {}, {}\n", device, chip_name(),
                          format_bytes(memory.total), tr("{} free", format_bytes(memory.free)));
    }
    for (const std::string& name : absent_operators()) text += "absent\t" + name + "\n";
  } catch (const Error& error) {
    text += fmt::format("failure\t{}\n", error.what());
  }
  return text;
}

}  // namespace danlu::npu
