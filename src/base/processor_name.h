// base/processor_name.h: what a processor is called.
#pragma once
#include <string>
#include <string_view>

namespace danlu {

/// The line of a text in the form of /proc/cpuinfo that begins with `key`, what stands after its
/// colon; the first of several. Empty where there is none.
std::string cpuinfo_value(std::string_view cpuinfo, std::string_view key);

/// "model name", which Arm's kernels do not write: there the core's name by the numbers of its
/// maker, "TaiShan v110 (Kunpeng 920)", or these numbers. Empty where the text says nothing.
/// Source: lscpu of util-linux.
std::string processor_name(std::string_view cpuinfo);

}  // namespace danlu
