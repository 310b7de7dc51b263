#include "bench/processor.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

#include "base/cpu_class.h"
#include "base/processor_name.h"

namespace danlu::bench {
namespace {

std::string maker(const std::string& vendor) {
  if (vendor == "AuthenticAMD") return "amd";
  if (vendor == "GenuineIntel") return "intel";
  std::string word;
  for (const char c : vendor) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return word.empty() ? "unknown" : word;
}

const char* word_of_class(CpuClass cpu_class) {
  switch (cpu_class) {
    case CpuClass::kPlain:
      return "plain";
    case CpuClass::kAvx2:
      return "avx2";
    case CpuClass::kAvx512:
      return "avx512";
    case CpuClass::kAvx512Bf16:
      return "avx512bf16";
    case CpuClass::kAmx:
      return "amx";
    case CpuClass::kNeonDots:
      return "dots";
    case CpuClass::kNeonBf16:
      return "dotsbf16";
  }
  return "plain";
}

}  // namespace

Processor processor_of(const std::string& cpuinfo) {
  Processor result;
  result.name = processor_name(cpuinfo);
  // x86 says vendor, family, model; Arm implementer, architecture, part.
  const bool is_arm = cpuinfo_value(cpuinfo, "vendor_id").empty();
  result.key = maker(cpuinfo_value(cpuinfo, is_arm ? "CPU implementer" : "vendor_id"));
  for (const char* key :
       {is_arm ? "CPU architecture" : "cpu family", is_arm ? "CPU part" : "model"})
    if (const std::string value = cpuinfo_value(cpuinfo, key); !value.empty())
      result.key += "-" + value;
  result.key += std::string("-") + word_of_class(cpu_class());
  return result;
}

Processor this_processor() {
  std::ifstream file("/proc/cpuinfo");
  return processor_of({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

}  // namespace danlu::bench
