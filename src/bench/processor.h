// bench/processor.h: which processors are of one kind, so that their figures may be compared.
#pragma once
#include <string>

namespace danlu::bench {

struct Processor {
  std::string name;  ///< as the system says it; "" if it does not
  std::string key;   ///< "amd-25-17-avx512bf16": maker, family, model, class of instructions
};

/// The processor that a text in the form of /proc/cpuinfo describes, with base/cpu_class.h's class.
Processor processor_of(const std::string& cpuinfo);
/// This machine's.
Processor this_processor();

}  // namespace danlu::bench
