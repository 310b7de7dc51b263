#include "base/tile_registers.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/cpu_class.h"
#include "base/error.h"
#include "base/message.h"

namespace danlu::tiles {
namespace {

constexpr size_t kPairs = kRowBytes / sizeof(uint32_t);

struct ModelRegister {
  size_t rows = 0, row_bytes = 0;
  alignas(64) char data[kRows][kRowBytes] = {};
};
struct ModelRegisters {
  bool is_configured = false;
  ModelRegister tiles[kRegisters];
};
ModelRegisters& model_registers() {
  static thread_local ModelRegisters registers;
  return registers;
}

[[noreturn]] void fault(size_t tile) {
  throw InternalError(fmt::format("[amx] register {}: the processor would fault", tile));
}

ModelRegister& used_register(size_t tile) {
  ModelRegister& found = model_registers().tiles[tile];
  if (!model_registers().is_configured || found.rows == 0) fault(tile);
  return found;
}

float flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}

[[gnu::always_inline]] inline float f32_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct PairSums {
  float first[kPairs], second[kPairs];
};

/// One more k: the members of a's pair with those of a row of b. Denormal numbers of bf16 are
/// those of f32 above their 16 bits.
[[gnu::always_inline]] inline void add_pair(PairSums& sums, uint32_t pair, const uint32_t* row) {
  const float a_first = flushed(f32_of(pair << 16)), a_second = flushed(f32_of(pair & 0xffff0000));
  for (size_t n = 0; n < kPairs; ++n) {
    const float first = flushed(f32_of(row[n] << 16)),
                second = flushed(f32_of(row[n] & 0xffff0000));
    sums.first[n] = flushed(__builtin_fmaf(a_first, first, sums.first[n]));
    sums.second[n] = flushed(__builtin_fmaf(a_second, second, sums.second[n]));
  }
}

[[gnu::always_inline]] inline void add_row(const uint32_t* pairs, size_t count,
                                           const ModelRegister& b, float* to) {
  PairSums sums{};
  for (size_t k = 0; k < count; ++k)
    add_pair(sums, pairs[k], reinterpret_cast<const uint32_t*>(b.data[k]));
  for (size_t n = 0; n < b.row_bytes / sizeof(float); ++n)
    to[n] = flushed(flushed(to[n]) + flushed(sums.first[n] + sums.second[n]));
}

#if defined(__x86_64__)
/// The same numbers, sooner: without the instruction each fused operation is a call.
[[gnu::target("avx2,fma")]] void add_row_fused(const uint32_t* pairs, size_t count,
                                               const ModelRegister& b, float* to) {
  add_row(pairs, count, b, to);
}
#endif

void add_row_somehow(const uint32_t* pairs, size_t count, const ModelRegister& b, float* to) {
#if defined(__x86_64__)
  if (detected_cpu_class() >= CpuClass::kAvx2) return add_row_fused(pairs, count, b, to);
#endif
  add_row(pairs, count, b, to);
}

}  // namespace

void Model::configure(const Configuration& configuration) {
  ModelRegisters fresh;
  fresh.is_configured = true;
  for (size_t tile = 0; tile < std::size(configuration.rows); ++tile) {
    const size_t rows = configuration.rows[tile], bytes = configuration.row_bytes[tile];
    const bool fits = tile < kRegisters ? rows <= kRows && bytes <= kRowBytes : rows + bytes == 0;
    if (!fits || (rows == 0) != (bytes == 0)) fault(tile);
    if (tile < kRegisters) fresh.tiles[tile].rows = rows, fresh.tiles[tile].row_bytes = bytes;
  }
  if (configuration.palette != 1 || configuration.start_row != 0) fault(0);
  model_registers() = fresh;
}

void Model::release() { model_registers() = {}; }

bool Model::is_configured() { return model_registers().is_configured; }

void Model::zero_one(size_t tile) {
  ModelRegister& own = used_register(tile);
  std::memset(own.data, 0, sizeof own.data);
}

void Model::load_one(size_t tile, const void* from, size_t stride) {
  ModelRegister& own = used_register(tile);
  std::memset(own.data, 0, sizeof own.data);
  for (size_t row = 0; row < own.rows; ++row)
    std::memcpy(own.data[row], static_cast<const char*>(from) + row * stride, own.row_bytes);
}

void Model::store_one(size_t tile, void* to, size_t stride) {
  const ModelRegister& own = used_register(tile);
  for (size_t row = 0; row < own.rows; ++row)
    std::memcpy(static_cast<char*>(to) + row * stride, own.data[row], own.row_bytes);
}

void Model::multiply_add_one(size_t sums, size_t a, size_t b) {
  ModelRegister& own = used_register(sums);
  const ModelRegister &left = used_register(a), &right = used_register(b);
  if (sums == a || sums == b || a == b || own.rows != left.rows ||
      own.row_bytes != right.row_bytes || left.row_bytes != right.rows * sizeof(uint32_t))
    fault(sums);
  for (size_t m = 0; m < own.rows; ++m) {
    add_row_somehow(reinterpret_cast<const uint32_t*>(left.data[m]), right.rows, right,
                    reinterpret_cast<float*>(own.data[m]));
  }
}

bool are_there() {
#if defined(__x86_64__)
  constexpr unsigned kHasSystemState = 1u << 27, kProducts = 1u << 22, kTiles = 1u << 24;
  constexpr unsigned kSavedState = 3u << 17;  // XTILECFG and XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kHasSystemState)) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  if ((d & (kProducts | kTiles)) != (kProducts | kTiles)) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kSavedState) != kSavedState) return false;
  // Palette 1: bytes of a row, registers, rows.
  if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d)) return false;
  return (b & 0xffff) >= kRowBytes && (b >> 16) >= kRegisters && (c & 0xffff) >= kRows;
#else
  return false;
#endif
}

int ask_for_permission() {
#if defined(__x86_64__)
  // Debian 12's headers have them; older ones do not.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
#else
  return ENOSYS;
#endif
}

SmallProduct small_product() {
  SmallProduct p;
  // Numbers of two signs with all seven bits of bf16, none of them denormal.
  uint32_t state = 1;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<uint16_t>(0x3f00u + (state >> 24) + ((state >> 23 & 1) << 15));
  };
  uint16_t* const a = &p.a[0][0][0];
  uint16_t* const b = &p.b[0][0][0];
  std::generate_n(a, sizeof p.a / sizeof *a, next);
  std::generate_n(b, sizeof p.b / sizeof *b, next);
  float* const sums = &p.sums[0][0];
  std::generate_n(sums, sizeof p.sums / sizeof *sums,
                  [&] { return f32_of(static_cast<uint32_t>(next()) << 16); });
  return p;
}

bool are_close(const SmallProduct& got, const SmallProduct& expected) {
  // 64 products of up to 4: another order of sums moves the last bits of 256.
  constexpr float kRounding = 256 * 0x1p-18f;
  for (size_t m = 0; m < SmallProduct::kM; ++m)
    for (size_t n = 0; n < SmallProduct::kN; ++n)
      if (!(std::fabs(got.sums[m][n] - expected.sums[m][n]) <= kRounding)) return false;
  return true;
}

std::string open() {
#if defined(__x86_64__)
  if (const int error = ask_for_permission(); error != 0)
    return tr("the system does not grant it: {}", std::strerror(error));
  if (!multiply_like_the_model<Hardware>())
    return tr("it multiplies otherwise than its manual says");
#endif
  return {};
}

}  // namespace danlu::tiles
