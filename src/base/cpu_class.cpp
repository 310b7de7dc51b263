#include "base/cpu_class.h"

#include <fmt/format.h>
#include <unistd.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/message.h"
#include "base/tile_registers.h"

namespace danlu {
namespace {

struct Variable {
  const char* name;
  const char* value;
};
struct ClassFacts {
  CpuClass value;
  const char* choice;  ///< in DANLU_CPU; null: cannot be chosen, only found
  const char* title;
  /// libtorch's dispatch (ATen/native/DispatchStub.cpp), oneDNN's dispatcher control and
  /// OpenBLAS's DYNAMIC_ARCH core names. Null: nothing to say.
  std::array<Variable, 3> libraries;
};

#if defined(__x86_64__)
constexpr const char* kChoices = "amx, avx512bf16, avx512, avx2, plain";
constexpr std::array<ClassFacts, 5> kClasses{{
    {CpuClass::kPlain,
     "plain",
     "SSE",
     {{{"ATEN_CPU_CAPABILITY", "default"},
       {"ONEDNN_MAX_CPU_ISA", "SSE41"},
       {"OPENBLAS_CORETYPE", "Nehalem"}}}},
    {CpuClass::kAvx2,
     "avx2",
     "AVX2",
     {{{"ATEN_CPU_CAPABILITY", "avx2"},
       {"ONEDNN_MAX_CPU_ISA", "AVX2"},
       {"OPENBLAS_CORETYPE", "Haswell"}}}},
    {CpuClass::kAvx512,
     "avx512",
     "AVX-512 without bf16",
     {{{"ATEN_CPU_CAPABILITY", "avx512"},
       {"ONEDNN_MAX_CPU_ISA", "AVX512_CORE"},
       {"OPENBLAS_CORETYPE", "SkylakeX"}}}},
    {CpuClass::kAvx512Bf16,
     "avx512bf16",
     "AVX-512 with bf16",
     {{{"ATEN_CPU_CAPABILITY", "avx512"},
       {"ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"},
       {"OPENBLAS_CORETYPE", "SkylakeX"}}}},
    {CpuClass::kAmx, "amx", "AVX-512 with bf16 and AMX", {}},
}};
#elif defined(__aarch64__)
constexpr const char* kChoices = "dots, plain";
constexpr std::array<Variable, 3> kOfNeon{{{"ATEN_CPU_CAPABILITY", "default"},
                                           {"ONEDNN_MAX_CPU_ISA", "advanced_simd"},
                                           {"OPENBLAS_CORETYPE", "armv8"}}};
constexpr std::array<ClassFacts, 3> kClasses{{
    {CpuClass::kPlain, "plain", "NEON", kOfNeon},
    {CpuClass::kNeonDots, "dots", "NEON with dot products", kOfNeon},
    {CpuClass::kNeonBf16, nullptr, "NEON with dot products and bf16", {}},
}};
#else
constexpr const char* kChoices = "plain";
constexpr std::array<ClassFacts, 1> kClasses{
    {{CpuClass::kPlain, "plain", "the architecture's own vectors", {}}}};
#endif

const ClassFacts& facts_of(CpuClass value) {
  return *std::find_if(kClasses.begin(), kClasses.end(),
                       [&](const ClassFacts& facts) { return facts.value == value; });
}

CpuClass detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // The levels of the x86-64 psABI: kernels are compiled for all of a level (BMI2, MOVBE, …).
  if (!__builtin_cpu_supports("x86-64-v3")) return CpuClass::kPlain;
  if (!__builtin_cpu_supports("x86-64-v4")) return CpuClass::kAvx2;
  if (!__builtin_cpu_supports("avx512bf16")) return CpuClass::kAvx512;
  return tiles::are_there() ? CpuClass::kAmx : CpuClass::kAvx512Bf16;
#elif defined(__aarch64__)
  if (!(::getauxval(AT_HWCAP) & HWCAP_ASIMDDP)) return CpuClass::kPlain;
  return ::getauxval(AT_HWCAP2) & HWCAP2_BF16 ? CpuClass::kNeonBf16 : CpuClass::kNeonDots;
#else
  return CpuClass::kPlain;
#endif
}

/// What is used of a processor that has more, unless DANLU_CPU names it.
constexpr CpuClass kHighestUnasked =
#if defined(__x86_64__)
    CpuClass::kAvx512Bf16;
#else
    CpuClass::kNeonBf16;
#endif

std::optional<CpuClass> chosen() {
  const char* text = std::getenv("DANLU_CPU");
  if (!text || !*text) return std::nullopt;
  for (const ClassFacts& facts : kClasses) {
    if (!facts.choice || std::string_view(text) != facts.choice) continue;
    if (facts.value > detected_cpu_class()) {
      throw DeviceError(tr("[cpu] DANLU_CPU={}: this processor has less: {}", text,
                           facts_of(detected_cpu_class()).title),
                        tr("leave DANLU_CPU unset to use what the processor has"));
    }
    return facts.value;
  }
  throw UsageError(tr("[cpu] DANLU_CPU must be one of {}, got '{}'", kChoices, text),
                   tr("it lowers what is used; unset, all that the processor has but AMX is used"));
}

CpuClass find_used() {
  const std::optional<CpuClass> wish = chosen();
  // Nobody has run them on a processor that has them, so they must be asked for.
  if (!wish) return std::min(detected_cpu_class(), kHighestUnasked);
  if (*wish != CpuClass::kAmx) return *wish;
  if (const std::string refused = tiles::open(); !refused.empty()) {
    throw DeviceError(tr("[cpu] DANLU_CPU=amx: {}", refused),
                      tr("leave DANLU_CPU unset to compute without tiles"));
  }
  return *wish;
}

}  // namespace

CpuClass detected_cpu_class() {
  static const CpuClass value = detect();
  return value;
}

CpuClass cpu_class() {
  static const CpuClass value = find_used();
  return value;
}

bool has_bf16_dots() {
  return cpu_class() == CpuClass::kAmx || cpu_class() == CpuClass::kAvx512Bf16 ||
         cpu_class() == CpuClass::kNeonBf16;
}

bool libtorch_has_bf16_dots() { return has_bf16_dots() && cpu_class() != CpuClass::kNeonBf16; }

bool multiplies_bf16_faster() {
  if (!has_bf16_dots()) return false;
  if (cpu_class() == CpuClass::kAmx) return true;
#if defined(__x86_64__)
  // AVX512-FP16 came with Golden Cove. Among Intel's earlier processors only Cooper Lake has bf16;
  // it was not measured.
  return !(__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512fp16"));
#else
  return true;
#endif
}

const char* name_of(CpuClass value) { return facts_of(value).title; }

std::string describe_cpu_class() {
  const char* used = name_of(cpu_class());
  if (cpu_class() == detected_cpu_class()) return std::string(translated(used));
  if (!chosen()) return tr("{} (the processor has AMX, which DANLU_CPU=amx uses)", used);
  return tr("{} (DANLU_CPU; the processor has {})", used, name_of(detected_cpu_class()));
}

bool constrain_libraries() {
  cpu_class();  // asks for tiles before the libraries start threads
  if (!chosen()) return false;
  bool changed = false;
  for (const auto& [name, value] : facts_of(cpu_class()).libraries) {
    if (!name) continue;
    const char* before = std::getenv(name);
    if (before && std::strcmp(before, value) == 0) continue;
    ::setenv(name, value, /*overwrite=*/1);
    changed = true;
  }
  return changed;
}

void restart_constrained(char** argv) {
  if (!constrain_libraries()) return;
  ::execv("/proc/self/exe", argv);
  throw InternalError(
      fmt::format("[cpu] the program cannot start itself again: {}", std::strerror(errno)));
}

}  // namespace danlu
