// base/cpu_class.h: which vector instructions danlu and the libraries under it may use.
#pragma once
#include <string>

namespace danlu {

/// Each has what the one before it of the same architecture has.
enum class CpuClass {
  kPlain,       ///< the architecture's own minimum: SSE2, NEON (ARMv8.0)
  kAvx2,        ///< x86-64-v3 (AVX2, FMA, F16C, BMI2, …): Haswell, Zen 1 to 3 and later
  kAvx512,      ///< x86-64-v4 (AVX-512 F, BW, CD, DQ, VL): Skylake-X, Cascade Lake, Ice Lake
  kAvx512Bf16,  ///< and dot products of bf16: Cooper Lake, Zen 4
  kAmx,         ///< and tiles of bf16 (base/tile_registers.h): Sapphire Rapids and later
  kNeonDots,    ///< NEON, and dot products of bytes (asimddp): Kunpeng 920, Neoverse N1
  kNeonBf16,    ///< and dot products of bf16: Neoverse V1 and N2
};

/// What this processor and system have. Tiles may still be refused, and are used only if asked for.
CpuClass detected_cpu_class();

/// What is used: the class that DANLU_CPU names (plain, avx2, avx512, avx512bf16, amx; on Arm
/// plain, dots), else the detected one, without AMX, which has not run on a processor that has it.
/// If DANLU_CPU is amx the first call asks the system for tiles, which must be before there are
/// threads with small stacks for signals. The same for the whole process. Errors: UsageError if
/// DANLU_CPU is none of the names; DeviceError if the processor has less, the system refuses tiles,
/// or they multiply wrongly.
CpuClass cpu_class();

/// True if what is used has dot products of bf16. A few rows, bound by memory, are multiplied by
/// them.
bool has_bf16_dots();
/// True if libtorch has products of bf16 by them (oneDNN's, which it has on x86 alone).
bool libtorch_has_bf16_dots();

/// True if they also multiply more numbers a second than those of f32: many rows of bf16 are then
/// multiplied as they are, else widened. Without tiles Intel's cores since Golden Cove (Sapphire
/// Rapids) multiply half as many: 83 beside 167 GFLOP/s of a core of an Emerald Rapids, measured.
/// No core of Arm's was measured: one instruction does twice the work of f32's.
bool multiplies_bf16_faster();

/// "AVX-512 without bf16", in every language.
const char* name_of(CpuClass value);
/// The name of what is used, translated, with "(DANLU_CPU; the processor has …)" where that lowered
/// it, or how to use tiles.
std::string describe_cpu_class();

/// Tells libtorch, oneDNN and OpenBLAS to stay within DANLU_CPU, by their own variables; nothing
/// without it. They read them while they are loaded: call it before. True if a variable changed.
/// Errors: as cpu_class.
bool constrain_libraries();

/// For programs that are linked with those libraries: starts the program again, with the variables
/// set, if constrain_libraries() had to change one.
void restart_constrained(char** argv);

}  // namespace danlu
