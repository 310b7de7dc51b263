// base/tile_registers.h: the tile registers of Intel's AMX, and a model of them for every
// processor.
//
// Source: Intel SDM (64 and IA-32 Architectures Software Developer's Manual), volume 1,
// "Programming with Intel AMX", and volume 2, the instructions' pages. In our words:
// - Each of eight registers holds up to 16 rows of up to 64 bytes. LDTILECFG says how many of both
//   and clears all registers. A register that is not used has neither; one of the two alone faults.
// - TILELOADD reads a row at every `stride` bytes and clears the rows behind the configured ones.
//   TILESTORED writes the configured rows and bytes, and nothing beside them.
// - TDPBF16PS adds a times b to sums. Row k of b holds pairs of bf16 that are neighbours along k.
//   Sums have a's rows and b's bytes in a row, and a has a pair for each row of b; else it faults.
// - Of an element the first members of the pairs are summed over k, from 0, by fused
//   multiply-adds; the second members likewise. The two sums are added, and that to the element.
// - Each of these operations rounds to the nearest f32, ties to even. Denormal inputs count as 0
//   and denormal results become 0. MXCSR is neither read nor written, and nothing traps. (Intel's
//   Intrinsics Guide sums in another order; the manual is followed.)
// - TILERELEASE brings the registers into their initial state, which no system has to save.
//
// Registers belong to a thread. Both sets have the same functions, so that code is written once:
// over `Tiles`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace danlu::tiles {

constexpr size_t kRegisters = 8, kRows = 16, kRowBytes = 64;

/// What LDTILECFG reads: palette 1, no register used.
struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};  ///< of eight registers; the others are reserved
  uint8_t rows[16] = {};

  /// REQUIRES: a register; up to kRows and kRowBytes, both 0 or neither.
  void set(size_t tile, size_t rows_of_it, size_t row_bytes_of_it) {
    rows[tile] = static_cast<uint8_t>(rows_of_it);
    row_bytes[tile] = static_cast<uint16_t>(row_bytes_of_it);
  }
};
static_assert(sizeof(Configuration) == 64);

#if defined(__x86_64__)
/// The processor's. REQUIRES: open() has returned nothing; configured but for configure().
/// Written as assembler: compilers' own functions want constants that are no template's.
struct Hardware {
  static void configure(const Configuration& c) {
    asm volatile("ldtilecfg %0" : : "m"(c) : "memory");
  }
  static void release() { asm volatile("tilerelease" : : : "memory"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  static void load(const void* from, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSums, int kA, int kB>
  static void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};
#endif

/// The model's, of this thread.
/// Errors: InternalError where the processor would fault.
struct Model {
  static void configure(const Configuration& configuration);
  static void release();
  template <int kTile>
  static void zero() {
    zero_one(kTile);
  }
  template <int kTile>
  static void load(const void* from, size_t stride) {
    load_one(kTile, from, stride);
  }
  template <int kTile>
  static void store(void* to, size_t stride) {
    store_one(kTile, to, stride);
  }
  template <int kSums, int kA, int kB>
  static void multiply_add() {
    multiply_add_one(kSums, kA, kB);
  }
  /// False in the initial state.
  static bool is_configured();

 private:
  static void zero_one(size_t tile);
  static void load_one(size_t tile, const void* from, size_t stride);
  static void store_one(size_t tile, void* to, size_t stride);
  static void multiply_add_one(size_t sums, size_t a, size_t b);
};

/// True if the processor has such registers with products of bf16, and the system keeps them for
/// its programs (CPUID, XCR0). They may still have to be asked for.
bool are_there();

/// Asks Linux for the registers, for all threads of this process, those to come as well
/// (arch_prctl, ARCH_REQ_XCOMP_PERM). 0, or errno: kernels before 5.16 know no such request, and a
/// filter of system calls can refuse it.
int ask_for_permission();

/// True if a small product through `Tiles` is the model's, up to rounding. Releases the registers.
/// REQUIRES: they may be used.
template <typename Tiles>
bool multiply_like_the_model();

/// All that must be done before the registers are used, once per process. Empty, or in the user's
/// language why they may not be. REQUIRES: are_there().
std::string open();

// --- what multiply_like_the_model computes
// --------------------------------------------------------

/// Two steps of sums [13, 16] += a [13, 2 x 32] b, with all registers that products use.
struct SmallProduct {
  static constexpr size_t kM = 13, kN = 16, kSteps = 16;
  uint16_t a[2][kM][2 * kSteps];
  uint16_t b[2][kSteps][2 * kN];
  float sums[kM][kN];  ///< before the product, then after it
};
SmallProduct small_product();
/// Whether sums are equal up to rounding.
bool are_close(const SmallProduct& got, const SmallProduct& expected);

template <typename Tiles>
void multiply_small(SmallProduct& p) {
  Configuration configuration;
  configuration.set(0, SmallProduct::kM, sizeof p.sums[0]);
  configuration.set(4, SmallProduct::kM, sizeof p.a[0][0]);
  configuration.set(6, SmallProduct::kSteps, sizeof p.b[0][0]);
  Tiles::configure(configuration);
  Tiles::template load<0>(p.sums, sizeof p.sums[0]);
  for (size_t i = 0; i < 2; ++i) {
    Tiles::template load<4>(p.a[i], sizeof p.a[0][0]);
    Tiles::template load<6>(p.b[i], sizeof p.b[0][0]);
    Tiles::template multiply_add<0, 4, 6>();
  }
  Tiles::template store<0>(p.sums, sizeof p.sums[0]);
  Tiles::release();
}

template <typename Tiles>
bool multiply_like_the_model() {
  SmallProduct got = small_product(), expected = got;
  multiply_small<Tiles>(got);
  multiply_small<Model>(expected);
  return are_close(got, expected);
}

}  // namespace danlu::tiles
