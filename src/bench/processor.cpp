#include "bench/processor.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/cpu_class.h"

namespace danlu::bench {
namespace {

/// What stands after the first line that begins with `key` and a colon.
std::string value_of(const std::string& cpuinfo, const std::string& key) {
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos || colon == 0) continue;
    if (line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != key) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "";
}

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
  }
  return "plain";
}

}  // namespace

Processor processor_of(const std::string& cpuinfo) {
  Processor result;
  result.name = value_of(cpuinfo, "model name");
  // x86 says vendor, family, model; Arm implementer, architecture, part.
  const bool is_arm = value_of(cpuinfo, "vendor_id").empty();
  result.key = maker(value_of(cpuinfo, is_arm ? "CPU implementer" : "vendor_id"));
  for (const char* key :
       {is_arm ? "CPU architecture" : "cpu family", is_arm ? "CPU part" : "model"})
    if (const std::string value = value_of(cpuinfo, key); !value.empty()) result.key += "-" + value;
  result.key += std::string("-") + word_of_class(cpu_class());
  return result;
}

Processor this_processor() {
  std::ifstream file("/proc/cpuinfo");
  return processor_of({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
}

}  // namespace danlu::bench
