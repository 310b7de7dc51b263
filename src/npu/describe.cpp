#include "npu/describe.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "npu/chips.h"
#include "npu/context.h"
#include "npu/library.h"
#include "npu/operators.h"

namespace danlu::npu {
namespace {

std::vector<std::string> absent_operators() {
  std::vector<std::string> absent;
  const auto look = [&](const auto&... operators) {
    ((operators.is_there() ? void() : absent.push_back(operators.name())), ...);
  };
  look(aclnn::matmul, aclnn::addmm, aclnn::inplace_addmm, aclnn::inplace_copy, aclnn::inplace_fill,
       aclnn::add, aclnn::inplace_add, aclnn::adds, aclnn::mul, aclnn::muls, aclnn::inplace_muls,
       aclnn::div, aclnn::maximum, aclnn::exp, aclnn::log, aclnn::sqrt, aclnn::sin, aclnn::cos,
       aclnn::neg, aclnn::sigmoid, aclnn::grouped_matmul, aclnn::is_finite, aclnn::ge_scalar,
       aclnn::where, aclnn::reduce_sum, aclnn::amax, aclnn::max_dim, aclnn::all, aclnn::gather,
       aclnn::index_select, aclnn::index_add, aclnn::scatter_add, aclnn::rms_norm,
       aclnn::rms_norm_grad, aclnn::swi_glu, aclnn::swi_glu_grad, aclnn::rotary, aclnn::attention,
       aclnn::attention_grad, aclnn::attention_of_blocks);
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
    if (const std::string why_not = why_not_on(chip_name()); count > 0 && !why_not.empty())
      text += "refused\t" + why_not + "\n";
    for (const std::string& name : absent_operators()) text += "absent\t" + name + "\n";
  } catch (const Error& error) {
    text += fmt::format("failure\t{}\n", error.what());
  }
  return text;
}

}  // namespace danlu::npu
