#include "core/numbers.h"

#include <atomic>
#include <limits>
#include <type_traits>

#include "core/config.h"

namespace npu_sim {
namespace {

std::atomic<bool> overflow_seen = false;

template <typename Raw>
struct Plain {
  using Bits = Raw;
  template <typename T>
  static T get(Raw raw) {
    return static_cast<T>(raw);
  }
  template <typename T>
  static Raw put(T value) {
    if constexpr (std::is_integral_v<Raw> && std::is_floating_point_v<T>) {
      if (std::isnan(value)) return Raw{0};
      const double low = static_cast<double>(std::numeric_limits<Raw>::min());
      const double high = static_cast<double>(std::numeric_limits<Raw>::max());
      if (static_cast<double>(value) <= low) return std::numeric_limits<Raw>::min();
      if (static_cast<double>(value) >= high) return std::numeric_limits<Raw>::max();
    }
    return static_cast<Raw>(value);
  }
};

struct Truth {
  using Bits = uint8_t;
  template <typename T>
  static T get(uint8_t raw) {
    return static_cast<T>(raw != 0);
  }
  template <typename T>
  static uint8_t put(T value) {
    return value != T{0};
  }
};

struct Brain {
  using Bits = uint16_t;
  template <typename T>
  static T get(uint16_t raw) {
    return static_cast<T>(bf16_to_float(raw));
  }
  template <typename T>
  static uint16_t put(T value) {
    return float_to_bf16(static_cast<float>(value));
  }
};

struct Half {
  using Bits = uint16_t;
  template <typename T>
  static T get(uint16_t raw) {
    return static_cast<T>(f16_to_float(raw));
  }
  template <typename T>
  static uint16_t put(T value) {
    return float_to_f16(static_cast<float>(value));
  }
};

template <typename F>
void with_type(aclDataType dtype, F&& use) {
  switch (dtype) {
    case ACL_FLOAT:
      return use(Plain<float>{});
    case ACL_FLOAT16:
      return use(Half{});
    case ACL_BF16:
      return use(Brain{});
    case ACL_DOUBLE:
      return use(Plain<double>{});
    case ACL_INT8:
      return use(Plain<int8_t>{});
    case ACL_UINT8:
      return use(Plain<uint8_t>{});
    case ACL_INT16:
      return use(Plain<int16_t>{});
    case ACL_UINT16:
      return use(Plain<uint16_t>{});
    case ACL_INT32:
      return use(Plain<int32_t>{});
    case ACL_UINT32:
      return use(Plain<uint32_t>{});
    case ACL_INT64:
      return use(Plain<int64_t>{});
    case ACL_UINT64:
      return use(Plain<uint64_t>{});
    case ACL_BOOL:
      return use(Truth{});
    default:
      return;
  }
}

template <typename Bits>
Bits bits_at(const char* base, int64_t place) {
  Bits raw;
  std::memcpy(&raw, base + place * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
  return raw;
}

template <typename Bits>
void set_bits(char* base, int64_t place, Bits raw) {
  std::memcpy(base + place * static_cast<int64_t>(sizeof(Bits)), &raw, sizeof(Bits));
}

template <typename T>
T fit(T value, aclDataType dtype) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!config().chip.has_infinity() && is_floating(dtype)) {
      bool overflow = false;
      const double kept = saturated(static_cast<double>(value), dtype, &overflow);
      if (overflow) overflow_seen = true;
      return static_cast<T>(kept);
    }
  }
  return value;
}

}  // namespace

int64_t View::numel() const {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

int64_t View::extent() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return 0;
    last += (dims[i] - 1) * strides[i];
  }
  return last + 1;
}

bool View::contiguous() const {
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] != 1 && strides[i] != step) return false;
    step *= dims[i];
  }
  return true;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    step *= dims[i];
  }
  return strides;
}

bool broadcast_to(const View& v, const std::vector<int64_t>& dims, View* out) {
  if (v.dims.size() > dims.size()) return false;
  const size_t missing = dims.size() - v.dims.size();
  View made = v;
  made.dims = dims;
  made.strides.assign(dims.size(), 0);
  for (size_t i = 0; i < v.dims.size(); ++i) {
    if (v.dims[i] == dims[missing + i]) {
      made.strides[missing + i] = v.strides[i];
    } else if (v.dims[i] != 1) {
      return false;
    }
  }
  *out = made;
  return true;
}

bool common_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
                  std::vector<int64_t>* out) {
  const size_t rank = std::max(a.size(), b.size());
  out->assign(rank, 1);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t x = i < rank - a.size() ? 1 : a[i - (rank - a.size())];
    const int64_t y = i < rank - b.size() ? 1 : b[i - (rank - b.size())];
    if (x != y && x != 1 && y != 1) return false;
    (*out)[i] = x == 1 ? y : x;
  }
  return true;
}

size_t size_of(aclDataType dtype) {
  size_t bytes = 0;
  with_type(dtype, [&](auto type) { bytes = sizeof(typename decltype(type)::Bits); });
  return bytes;
}

bool is_floating(aclDataType dtype) {
  return dtype == ACL_FLOAT || dtype == ACL_FLOAT16 || dtype == ACL_BF16 || dtype == ACL_DOUBLE;
}

bool is_integer(aclDataType dtype) { return size_of(dtype) > 0 && !is_floating(dtype); }

const char* name_of(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT:
      return "DT_FLOAT";
    case ACL_FLOAT16:
      return "DT_FLOAT16";
    case ACL_BF16:
      return "DT_BFLOAT16";
    case ACL_DOUBLE:
      return "DT_DOUBLE";
    case ACL_INT8:
      return "DT_INT8";
    case ACL_UINT8:
      return "DT_UINT8";
    case ACL_INT16:
      return "DT_INT16";
    case ACL_UINT16:
      return "DT_UINT16";
    case ACL_INT32:
      return "DT_INT32";
    case ACL_UINT32:
      return "DT_UINT32";
    case ACL_INT64:
      return "DT_INT64";
    case ACL_UINT64:
      return "DT_UINT64";
    case ACL_BOOL:
      return "DT_BOOL";
    default:
      return "an undefined type";
  }
}

float bf16_to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

uint16_t float_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return 0x7FC0;
  bits += 0x7FFF + ((bits >> 16) & 1);
  return static_cast<uint16_t>(bits >> 16);
}

float f16_to_float(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  float size;
  if (exponent == 31) {
    size =
        fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    size = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return bits & 0x8000 ? -size : size;
}

uint16_t float_to_f16(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7E00);
  const float size = std::fabs(value);
  if (size >= 65520.0f) return static_cast<uint16_t>(sign | 0x7C00);
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);                    // size = m · 2^exponent, m in [0.5, 1)
  const int unit = std::max(exponent - 11, -24);  // of the last place
  const auto steps = static_cast<uint16_t>(std::nearbyint(std::ldexp(size, -unit)));
  const int base = unit + 24;  // subnormals: 0
  // A carry into the next exponent is what the addition does by itself.
  const uint16_t magnitude = base == 0 ? steps : static_cast<uint16_t>((base << 10) + steps);
  return static_cast<uint16_t>(sign | magnitude);
}

double saturated(double value, aclDataType dtype, bool* overflow) {
  *overflow = false;
  if (std::isnan(value)) return 0;
  const double most =
      dtype == ACL_FLOAT16 ? 65504.0 : static_cast<double>(std::numeric_limits<float>::max());
  if (std::fabs(value) <= most) return value;
  *overflow = true;
  return value > 0 ? most : -most;
}

template <typename T>
std::vector<T> read(const Live& t) {
  std::vector<T> values(static_cast<size_t>(t.view.numel()));
  with_type(t.view.dtype, [&](auto type) {
    using Type = decltype(type);
    size_t i = 0;
    if (t.view.contiguous()) {
      for (int64_t at = t.view.offset; i < values.size(); ++i, ++at) {
        values[i] = Type::template get<T>(bits_at<typename Type::Bits>(t.base, at));
      }
      return;
    }
    each_place(t.view, [&](int64_t at) {
      values[i++] = Type::template get<T>(bits_at<typename Type::Bits>(t.base, at));
    });
  });
  return values;
}

template <typename T>
void write(const Live& t, const std::vector<T>& values) {
  with_type(t.view.dtype, [&](auto type) {
    using Type = decltype(type);
    size_t i = 0;
    each_place(t.view, [&](int64_t at) {
      set_bits<typename Type::Bits>(t.base, at, Type::put(fit(values[i++], t.view.dtype)));
    });
  });
}

template <typename T>
T load(const Live& t, int64_t at) {
  T value{};
  with_type(t.view.dtype, [&](auto type) {
    using Type = decltype(type);
    value = Type::template get<T>(bits_at<typename Type::Bits>(t.base, at));
  });
  return value;
}

template <typename T>
void store(const Live& t, int64_t at, T value) {
  with_type(t.view.dtype, [&](auto type) {
    using Type = decltype(type);
    set_bits<typename Type::Bits>(t.base, at, Type::put(fit(value, t.view.dtype)));
  });
}

template std::vector<float> read(const Live&);
template std::vector<double> read(const Live&);
template std::vector<int64_t> read(const Live&);
template void write(const Live&, const std::vector<float>&);
template void write(const Live&, const std::vector<double>&);
template void write(const Live&, const std::vector<int64_t>&);
template float load(const Live&, int64_t);
template double load(const Live&, int64_t);
template int64_t load(const Live&, int64_t);
template void store(const Live&, int64_t, float);
template void store(const Live&, int64_t, double);
template void store(const Live&, int64_t, int64_t);

bool overflow_flag(bool reset) {
  return reset ? overflow_seen.exchange(false) : overflow_seen.load();
}

}  // namespace npu_sim
