// Dropout masks (a bit an element, 1 keeps) and random fills. The numbers are the simulator's own.
#include <cmath>
#include <cstring>
#include <numbers>

#include "ops/kinds.h"

using namespace npu_sim;

namespace {

/// A number in [0, 1) from a counter.
double draw(uint64_t seed, uint64_t offset, uint64_t i) {
  uint64_t z = seed * 0x9E3779B97F4A7C15ull + offset * 0xD1342543DE82EF95ull +
               (i + 1) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

int64_t mask_bytes(int64_t elements) { return (elements + 127) / 128 * 128 / 8; }

void check_mask(Plan& p, const Tensor& mask, int64_t elements) {
  p.dtype(mask, {ACL_UINT8});
  p.require(mask.view.numel() >= mask_bytes(elements),
            "the mask has " + std::to_string(mask.view.numel()) + " bytes for " +
                std::to_string(elements) + " elements");
  p.require(mask.view.contiguous(), "the mask is not contiguous");
}

void fill_mask(const Live& mask, int64_t elements, double drop, int64_t seed, int64_t offset) {
  auto* bits = reinterpret_cast<unsigned char*>(mask.base + mask.view.offset);
  std::memset(bits, 0, at(mask_bytes(elements)));
  for (int64_t i = 0; i < mask_bytes(elements) * 8; ++i) {
    const bool keep = draw(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset),
                           static_cast<uint64_t>(i)) >= drop;
    if (keep) bits[i / 8] = static_cast<unsigned char>(bits[i / 8] | 1 << (i % 8));
  }
}

/// Where the bit is 1, times `scale`; 0 elsewhere.
std::vector<double> masked(std::vector<double> values, const Live& mask, double scale) {
  const auto* bits = reinterpret_cast<const unsigned char*>(mask.base + mask.view.offset);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = bits[i / 8] >> (i % 8) & 1 ? values[i] * scale : 0;
  return values;
}

void check_probability(Plan& p, double prob) {
  p.require(prob >= 0 && prob <= 1, "a probability is in 0 … 1");
}
double kept_scale(double drop) { return drop == 1 ? 0 : 1 / (1 - drop); }

void make_mask(Plan& p, const aclIntArray* shape, double prob, int64_t seed, int64_t offset,
               aclTensor* out) {
  int64_t elements = 1;
  for (const int64_t d : p.ints(shape, "shape")) elements *= d;
  const Tensor o = p.out(out, "out");
  check_mask(p, o, elements);
  check_probability(p, prob);
  p.run([=](Run& run) { fill_mask(bytes(run, o), elements, prob, seed, offset); });
}

}  // namespace

NPU_SIM_DEFINE(aclnnDropoutGenMask, const aclIntArray* shape, double prob, int64_t seed,
               int64_t offset, aclTensor* out) {
  NPU_SIM_PLAN(aclnnDropoutGenMask) { make_mask(p, shape, prob, seed, offset, out); });
}

NPU_SIM_DEFINE(aclnnDropoutGenMaskV2, const aclIntArray* shape, double prob, int64_t seed,
               int64_t offset, aclDataType probDataType, aclTensor* out) {
  NPU_SIM_PLAN(aclnnDropoutGenMaskV2) {
    p.require(is_floating(probDataType), "probDataType is a floating type");
    make_mask(p, shape, prob, seed, offset, out);
  });
}

NPU_SIM_DEFINE(aclnnDropoutDoMask, const aclTensor* self, const aclTensor* mask, double prob,
               aclTensor* out) {
  NPU_SIM_PLAN(aclnnDropoutDoMask) {
    const Tensor a = p.in(self, "self"), m = p.in(mask, "mask"), o = p.out(out, "out");
    p.dtype(a, kFloats);
    p.same_dtype(a, o);
    p.shape(o, a.dims());
    check_mask(p, m, a.view.numel());
    check_probability(p, prob);
    p.run([=](Run& run) {
      write(bytes(run, o), masked(read<double>(bytes(run, a)), bytes(run, m), kept_scale(prob)));
    });
  });
}

NPU_SIM_DEFINE(aclnnDropout, const aclTensor* input, double p_drop, bool train, int64_t seed,
               int64_t offset, aclTensor* out, aclTensor* maskOut) {
  NPU_SIM_PLAN(aclnnDropout) {
    const Tensor a = p.in(input, "input"), o = p.out(out, "out"), m = p.out(maskOut, "maskOut");
    p.dtype(a, kFloats);
    p.same_dtype(a, o);
    p.shape(o, a.dims());
    check_mask(p, m, a.view.numel());
    check_probability(p, p_drop);
    const double drop = train ? p_drop : 0;
    p.run([=](Run& run) {
      fill_mask(bytes(run, m), a.view.numel(), drop, seed, offset);
      write(bytes(run, o), masked(read<double>(bytes(run, a)), bytes(run, m), kept_scale(drop)));
    });
  });
}

NPU_SIM_DEFINE(aclnnDropoutBackward, const aclTensor* gradOutput, const aclTensor* mask,
               double scale, aclTensor* out) {
  NPU_SIM_PLAN(aclnnDropoutBackward) {
    const Tensor g = p.in(gradOutput, "gradOutput"), m = p.in(mask, "mask"), o = p.out(out, "out");
    p.dtype(g, kFloats);
    p.same_dtype(g, o);
    p.shape(o, g.dims());
    check_mask(p, m, g.view.numel());
    p.run([=](Run& run) {
      write(bytes(run, o), masked(read<double>(bytes(run, g)), bytes(run, m), scale));
    });
  });
}

NPU_SIM_DEFINE(aclnnInplaceNormal, const aclTensor* selfRef, float mean, float std, int64_t seed,
               int64_t offset) {
  NPU_SIM_PLAN(aclnnInplaceNormal) {
    const Tensor o = p.out(selfRef, "selfRef");
    p.dtype(o, kFloats);
    p.run([=](Run& run) {
      std::vector<double> v(at(o.view.numel()));
      const auto key = static_cast<uint64_t>(seed), skip = static_cast<uint64_t>(offset);
      for (size_t i = 0; i < v.size(); ++i) {
        const double radius = std::sqrt(-2 * std::log(1 - draw(key, skip, 2 * i)));
        const double angle = 2 * std::numbers::pi * draw(key, skip, 2 * i + 1);
        v[i] = static_cast<double>(mean) + static_cast<double>(std) * radius * std::cos(angle);
      }
      write(bytes(run, o), v);
    });
  });
}

NPU_SIM_DEFINE(aclnnInplaceUniform, const aclTensor* selfRef, double from, double to, uint64_t seed,
               uint64_t offset) {
  NPU_SIM_PLAN(aclnnInplaceUniform) {
    const Tensor o = p.out(selfRef, "selfRef");
    p.dtype(o, kFloats);
    p.run([=](Run& run) {
      std::vector<double> v(at(o.view.numel()));
      for (size_t i = 0; i < v.size(); ++i) v[i] = from + (to - from) * draw(seed, offset, i);
      write(bytes(run, o), v);
    });
  });
}
