#include "base/processor_name.h"

#include <fmt/format.h>

#include <charconv>

namespace danlu {
namespace {

struct Core {
  unsigned implementer, part;
  const char* name;
};
constexpr Core kCores[] = {
    {0x41, 0xd03, "Cortex-A53"},
    {0x41, 0xd07, "Cortex-A57"},
    {0x41, 0xd08, "Cortex-A72"},
    {0x41, 0xd0b, "Cortex-A76"},
    {0x41, 0xd0c, "Neoverse N1"},
    {0x41, 0xd40, "Neoverse V1"},
    {0x41, 0xd49, "Neoverse N2"},
    {0x41, 0xd4f, "Neoverse V2"},
    {0x41, 0xd84, "Neoverse V3"},
    {0x41, 0xd8e, "Neoverse N3"},
    {0x48, 0xd01, "TaiShan v110 (Kunpeng 920)"},
    {0x48, 0xd02, "TaiShan v120"},
    {0x70, 0x660, "FTC660"},
    {0x70, 0x661, "FTC661"},
    {0x70, 0x662, "FTC662"},
    {0x70, 0x663, "FTC663"},
    {0x70, 0x664, "FTC664"},
    {0x70, 0x862, "FTC862"},
    {0xc0, 0xac3, "Ampere-1"},
    {0xc0, 0xac4, "Ampere-1a"},
};

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

/// "0x48".
unsigned hexadecimal(std::string_view text) {
  unsigned number = 0;
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return number;
}

}  // namespace

std::string cpuinfo_value(std::string_view cpuinfo, std::string_view key) {
  while (!cpuinfo.empty()) {
    const size_t end = cpuinfo.find('\n');
    const std::string_view line = cpuinfo.substr(0, end);
    const size_t colon = line.find(':');
    if (colon != line.npos && without_blanks(line.substr(0, colon)) == key)
      return std::string(without_blanks(line.substr(colon + 1)));
    cpuinfo.remove_prefix(end == cpuinfo.npos ? cpuinfo.size() : end + 1);
  }
  return "";
}

std::string processor_name(std::string_view cpuinfo) {
  if (std::string name = cpuinfo_value(cpuinfo, "model name"); !name.empty()) return name;
  const std::string implementer = cpuinfo_value(cpuinfo, "CPU implementer"),
                    part = cpuinfo_value(cpuinfo, "CPU part");
  if (implementer.empty()) return "";
  for (const Core& core : kCores) {
    if (core.implementer == hexadecimal(implementer) && core.part == hexadecimal(part))
      return core.name;
  }
  return fmt::format("Arm {} {}", implementer, part);
}

}  // namespace danlu
